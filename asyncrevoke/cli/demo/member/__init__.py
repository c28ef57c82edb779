"""The member processes of the demo's groups, with this library or aiokafka."""
