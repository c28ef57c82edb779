"""``asyncrevoke demo``: a group whose members join and leave under load, and the check of its
result."""
