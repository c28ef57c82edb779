"""What the demo shows: the live view, the timeline and the report."""
