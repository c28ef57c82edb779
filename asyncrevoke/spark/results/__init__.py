"""Reads what the handlers of a replay have returned, as typed tables."""
