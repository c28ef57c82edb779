"""``asyncrevoke demo``: runs a group whose members join and leave under load, and checks the
result."""
