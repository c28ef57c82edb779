"""The process of a broker: its properties, and how it is started and ended."""
