"""Reading ranges of offsets without joining a group."""
