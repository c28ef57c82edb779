"""The HTTP ports of the commands: ``run --health-port`` and ``dashboard``.

They only answer GET and HEAD, one request a connection, and bound what a client may hold.
"""
