"""The SQL of an audit: its type, its expressions, and the database that runs it."""
