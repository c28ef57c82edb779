"""A live page of partitions, their owners, and revocations on their way.

The server draws: SVG and tables, sent whole over server-sent events, at most some times a second
and once for all viewers. What runs in the browser only puts them in place.
"""
