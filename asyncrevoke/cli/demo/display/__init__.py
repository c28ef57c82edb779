"""The display of the demo: the live view, the timeline and the report."""
