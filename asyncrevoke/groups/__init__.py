"""What brokers tell of consumer groups: members, assignments, offsets, lag."""
