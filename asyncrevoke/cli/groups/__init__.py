"""``asyncrevoke groups``: what consumer groups there are, and what one of them is doing."""
