"""Compares the results that a journal has of transactions with those that are visible."""
