"""``asyncrevoke topics``: creates, lists, describes and deletes topics."""
