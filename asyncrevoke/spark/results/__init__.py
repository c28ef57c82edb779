"""What a replay's handlers have returned, as typed tables."""
