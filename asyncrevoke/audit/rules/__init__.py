"""The rules of an audit: which rows of a journal and a topic are anomalies."""
