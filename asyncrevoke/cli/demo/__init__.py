"""``asyncrevoke demo``: a group whose members come and go under load, and who judges it."""
