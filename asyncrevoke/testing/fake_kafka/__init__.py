"""Brokers and group coordinators in memory and in virtual time, by the rules of Apache Kafka 4.x.

:class:`~asyncrevoke.testing.TestConsumer` uses them, and so does the simulation in the repository's
tests.
"""
