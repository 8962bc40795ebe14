"""Send messages by any service that Apprise knows, from a separate process."""
