"""Checks the segments of a session. Each segment has the digest of the one before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.journal.session_id import parse_session_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.journal.format.sealed import About
    from asyncrevoke.journal.segments import Content, Segment


class SegmentChain:
    """Checks that each segment of a session has the digest of the one before it, and that all rows
    are of this session."""

    def __init__(self, name: str) -> None:
        # The session id: the name of the folder, until a segment with an id is added.
        self.name = name
        self._is_named = False
        # A sentence for each damage in the files.
        self.damaged: list[str] = []
        self._last: Segment | None = None
        self._before: About | None = None
        # Why the end of the last segment cannot be read, if a process was writing it.
        self.torn: str | None = None
        # False if the last segment is damaged, so that its digest cannot be compared.
        self._is_comparable = True
        # The last segment with a session id.
        self._last_with_id: About | None = None

    def add(self, segment: Segment, content: Content) -> None:
        """Check the next segment, in the order of file names. Raises ConfigError for an invalid
        session id."""
        if self.torn is not None and self._last is not None:
            self.damaged.append(f"segment {self._last.path.name}: {self.torn}")
        self.torn = content.torn
        expected = 1 if self._last is None else self._last.number + 1
        for number in range(expected, min(segment.number, expected + 3)):
            self.damaged.append(f"segment {number:06} is missing")
        name = segment.path.name
        if content.damaged is not None:
            self.damaged.append(f"segment {name}: {content.damaged}")
        about = content.about
        if about is not None:
            parse_session_id(about.session, segment.path)
            self._follow(name, about, follows=segment.number == expected and self._is_comparable)
            if about.segment != segment.number:
                self.damaged.append(f"segment {name} was written as segment {about.segment:06}")
        self._check_sessions(segment, content.sessions)
        if about is None and content.torn is None and content.damaged is None:
            self.damaged.append(f"segment {name} has no digest")
        self._last, self._before, self._is_comparable = segment, about, content.damaged is None

    def _check_sessions(self, segment: Segment, names: Sequence[str]) -> None:
        of_others: list[str] = []
        for name in names:
            parse_session_id(name, segment.path)
            if not self._is_named:
                self.name, self._is_named = name, True
            elif name != self.name:
                of_others.append(name)
        if of_others:
            more = f" and of {len(of_others) - 1} others" if len(of_others) > 1 else ""
            self.damaged.append(
                f"segment {segment.path.name} has rows of session {of_others[0]}{more}"
            )

    def _follow(self, name: str, about: About, *, follows: bool) -> None:
        if self._last_with_id is None:
            self.name, self._is_named = about.session, True
        elif about.session != self._last_with_id.session:
            self.damaged.append(
                f"segment {name} is of session {about.session}, and earlier segments are of "
                f"{self._last_with_id.session}"
            )
        if follows and about.previous != (None if self._before is None else self._before.digest):
            self.damaged.append(
                f"segment {name} does not follow the segment before it, whose digest has changed"
            )
        self._last_with_id = about
