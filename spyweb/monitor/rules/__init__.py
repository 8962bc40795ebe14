"""What can be said of a cycle without doing anything: values between Python and Lua, texts, who is next.  Pure."""
