"""The Kafka client: the core decides, the runtime acts, the protocol encodes.

The package's kernel is this folder, :mod:`asyncrevoke.handlers` and :mod:`asyncrevoke.consumer`. It
imports nothing that stands beside it.
"""
