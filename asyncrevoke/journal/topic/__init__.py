"""A journal in a topic: sending and collecting it."""
