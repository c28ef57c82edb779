"""The files of a journal: logs of batches of rows, and Parquet when they are sealed."""
