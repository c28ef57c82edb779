"""Handlers on records of the past: without a group, and with a row for each record."""
