"""The audit: whether what a journal says and what a topic holds fit together."""
