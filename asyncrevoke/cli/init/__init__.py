"""``asyncrevoke init``; its templates are the files here that end with ``.txt``."""
