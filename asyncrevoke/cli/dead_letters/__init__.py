"""``asyncrevoke dead-letters``."""
