"""The version of this package, which ``pyproject.toml`` reads and brokers are told (KIP-511)."""

__version__ = "0.1.0"
