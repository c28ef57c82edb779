"""What is served over HTTP or written as HTML: the dashboard, health, metrics and reports."""
