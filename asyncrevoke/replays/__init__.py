"""Runs handlers on ranges of past records, without a group, with a row for each record."""
