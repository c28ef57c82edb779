"""Replays: run the handlers of a consumer on records of the past."""
