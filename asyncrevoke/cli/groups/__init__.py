"""``asyncrevoke groups``: lists consumer groups, or describes one."""
