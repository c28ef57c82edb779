"""The topic that an audit compares a journal with."""
