"""``asyncrevoke sink``: writes a topic to a lake."""
