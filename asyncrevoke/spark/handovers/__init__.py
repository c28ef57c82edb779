"""Handovers: a consumer group continues at the offsets of a Spark query."""
