"""Reads the topic that an audit compares with a journal."""
