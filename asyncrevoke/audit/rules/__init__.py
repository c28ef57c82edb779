"""The rules of an audit: queries for the anomalies of a journal and a topic."""
