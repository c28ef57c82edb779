"""``asyncrevoke run``: the handlers of an application, in one process or in several."""
