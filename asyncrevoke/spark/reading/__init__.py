"""How tasks read a topic: ranges of offsets, read as records or as whole batches."""
