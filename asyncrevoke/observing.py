"""Base classes of metrics and tracing: subclass one to receive what a consumer reports."""

from asyncrevoke.client.runtime.hooks.observers import Observer, Tracer

__all__ = ["Observer", "Tracer"]
