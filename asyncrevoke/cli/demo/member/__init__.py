"""A member of the demo's group: a process of its own, of this library or of aiokafka."""
