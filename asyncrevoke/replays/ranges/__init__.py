"""Reads ranges of offsets without joining a group."""
