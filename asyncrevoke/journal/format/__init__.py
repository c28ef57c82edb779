"""The file formats of a journal: logs of batches of rows, and Parquet for sealed segments."""
