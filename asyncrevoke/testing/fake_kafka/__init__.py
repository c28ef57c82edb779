"""Brokers and group coordinators in memory and in virtual time, by the rules of Apache Kafka (4.x).

:class:`~asyncrevoke.testing.TestConsumer` reads from them, and the simulation in the repository's
tests runs whole groups against them.
"""
