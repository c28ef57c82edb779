"""The HTTP server of ``run --health-port`` and ``dashboard``.

Responds to one GET or HEAD per connection, and limits the connections and the time of clients.
"""
