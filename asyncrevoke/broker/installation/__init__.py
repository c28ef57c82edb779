"""Finds Java, and finds or downloads the jars of Apache Kafka."""
