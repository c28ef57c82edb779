"""Recording: from an event of a session to a file on disk, and on to a topic."""
