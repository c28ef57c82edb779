"""Makes Arrow columns of record batches. Nothing imports it but what needs columns."""
