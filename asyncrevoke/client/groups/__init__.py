"""Describing consumer groups by requests to brokers: members, assignments, offsets, lag."""
