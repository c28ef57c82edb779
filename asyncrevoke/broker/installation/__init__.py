"""Where Java and the jars of Apache Kafka come from."""
