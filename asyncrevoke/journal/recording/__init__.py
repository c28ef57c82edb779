"""Recording: from the events of a session to files on disk, and to a topic."""
