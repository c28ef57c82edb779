"""Dead letter topics: what is in them, and how their records come back."""
