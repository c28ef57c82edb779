"""``asyncrevoke init``. The ``.txt`` files in its folders are templates."""
