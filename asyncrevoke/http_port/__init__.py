"""The HTTP server of ``run --health-port`` and ``dashboard``.

Answers one GET or HEAD per connection, and limits the connections and the time that clients take.
"""
