"""Reads ranges of offsets in tasks, as records or as whole batches."""
