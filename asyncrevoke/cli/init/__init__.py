"""``asyncrevoke init``; the files of its folders that end with ``.txt`` are its templates."""
