"""A journal in a topic: how it is sent there, and how it is collected from there."""
