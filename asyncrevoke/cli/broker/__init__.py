"""``asyncrevoke broker``: a real Apache Kafka on this machine."""
