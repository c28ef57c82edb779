"""Worker processes of an application, each a member of its group, and their supervisor."""
