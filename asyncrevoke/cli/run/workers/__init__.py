"""Processes of one application, each a member of its group, and who looks after them."""
