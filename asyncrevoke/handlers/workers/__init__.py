"""The tasks that run ready entries, and when they yield to the event loop."""
