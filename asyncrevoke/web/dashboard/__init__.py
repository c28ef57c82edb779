"""A live page of partitions, their owners and revocations.

The server renders tables and SVG once for all viewers and sends them as server-sent events, at most
ten times a second. The script in the browser only inserts them into the page.
"""
