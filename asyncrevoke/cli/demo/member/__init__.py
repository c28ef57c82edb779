"""Members of the demo's groups: processes that use this library or aiokafka."""
