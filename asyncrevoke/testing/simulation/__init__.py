"""A Kafka cluster in virtual time, in which real cores run as members of one group.

Theory of operation. A :class:`~world.World` has one clock and one seeded random generator, and
nothing else in it knows time or chance, so that a seed is a whole run. Brokers answer as Kafka's
do: one request at a time per connection, the group coordinator by the broker's own rules. Each
member is an application around one ``ConsumerCore`` whose effects the world carries out. Oracles
watch what leaves the cores and what the coordinator accepts, and never ask a core how it counts.

``python -m asyncrevoke.testing.simulation --seeds 0:1000`` runs schedules; a failure prints its
seed and the smallest schedule that still fails.
"""
