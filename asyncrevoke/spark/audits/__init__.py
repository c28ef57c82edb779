"""Audits on Spark, for journals and topics that are too large for one machine."""
