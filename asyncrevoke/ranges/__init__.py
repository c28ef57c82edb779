"""Ranges of offsets that are read from their start to their end, by no member of any group."""
