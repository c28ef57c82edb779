"""Audits of journals and topics that one machine does not hold."""
