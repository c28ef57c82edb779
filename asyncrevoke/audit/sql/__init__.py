"""SQL for DuckDB and Spark: its type, its dialects, and the tables that a query names."""
