"""``asyncrevoke broker``: runs a real Apache Kafka on this machine."""
