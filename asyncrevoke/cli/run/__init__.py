"""``asyncrevoke run``: runs the handlers of an application, in one or several processes."""
