"""``asyncrevoke init``; what it writes stands beside it, with ``.txt`` after each name."""
