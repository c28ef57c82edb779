"""SQL for DuckDB and for Spark: its type, what the two write differently, the tables it names."""
