"""``asyncrevoke groups``: shows groups, and changes offsets and configurations of share groups."""
