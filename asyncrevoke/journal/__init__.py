"""The journal: what a consumer has done, written so that it can be proved afterwards."""

from __future__ import annotations

from asyncrevoke.journal.journal import Journal

__all__ = ["Journal"]
