"""Integrations with frameworks; each module imports its framework."""
