"""Messages to people, by any service that Apprise knows, from a process of its own."""
