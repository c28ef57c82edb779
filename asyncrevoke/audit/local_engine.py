"""Runs an audit on one machine, with DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.audit.audited_group import (
    AuditedGroup,
    AuditSettings,
    group_of,
    handler_order_of,
    sessions_of_group,
    vouched_sessions,
)
from asyncrevoke.audit.compared_topic import AuditedTopic, compare
from asyncrevoke.audit.published.comparison import ResultsTopic, compare_results
from asyncrevoke.audit.results.audit_result import AuditResult, merged
from asyncrevoke.audit.rules.views import DONE
from asyncrevoke.audit.sql.database import AuditDatabase
from asyncrevoke.audit.sql.text import compose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.audit.offsets import AuditedGroupOffsets
    from asyncrevoke.journal.format.arrow import Table
    from asyncrevoke.journal.reading import JournalContent, SessionState
    from asyncrevoke.journal.session_list import SessionList

# With fewer bytes, DuckDB cannot move tables to its temporary folder.
_LEAST = 128 * 2**20
# The column names of the rules.
_NAMES = {"session_id": "session", "partition": "part", "offset": "off"}
# Numbers of sessions take less memory than names, and are compared faster.
_AUDITED_ROWS = """
    SELECT every_row.* REPLACE (CAST(session AS session_name) AS session)
    FROM every_row JOIN audited ON audited.topic = every_row.topic
        AND audited.of_group IS NOT DISTINCT FROM every_row."group"
"""
_JOURNAL = "SELECT * FROM audited_row WHERE kind <> 'ATTEMPT'"
_ATTEMPTS = compose(
    """
    SELECT session, part, off, key_hash, record_hash, attempt, started_us AS s, at_us AS f, outcome,
           outcome IN ({done}) AS done
    FROM audited_row WHERE kind = 'ATTEMPT'
    """,
    done=DONE,
)


async def audit(
    content: JournalContent,
    source: AuditedTopic,
    topic: str,
    *,
    group: str | None = None,
    group_offsets: AuditedGroupOffsets | None = None,
    settings: AuditSettings | None = None,
    memory_limit: int | None = None,
    results: Sequence[ResultsTopic] = (),
    listed: SessionList | None = None,
) -> AuditResult:
    """Compare what a journal says about a topic with the topic.

    ``group`` is required if consumers of several groups share the journal. ``group_offsets`` are
    the committed offsets of the group before ``content`` was read; without them, the audit finds a
    member without a journal only if another member continued after it. ``memory_limit``: bytes for
    the journal's rows and the comparison together; the rest goes to a temporary folder. By default,
    the rows and 80 % of the machine's memory. ``results`` are topics of results, read with
    ``read_committed``: the audit compares their records with the results in the journal, which
    consumers with ``processing="exactly_once"`` record. ``listed`` names all sessions that the
    group has had: a committed record that no journal names is then lost. Raises ConfigError, also
    if the limit is too low, or if ``listed`` lacks a session.
    """
    name, sessions = group_and_sessions(content, topic, group)
    vouched = vouched_sessions(listed, content.sessions, content.without_rows, name)
    left = None if memory_limit is None else max(memory_limit - content.table.nbytes, _LEAST)
    database = database_of(content.table, topic, name, left)
    # The database has the rows now.
    del content
    try:
        facts = database.rows("SELECT DISTINCT facts FROM journal WHERE kind = 'TOPIC'")
        orders = handler_order_of((text for (text,) in facts), sessions)
        audited = AuditedGroup(
            topic, name, sessions, orders, group_offsets, settings or AuditSettings(), vouched
        )
        result = merged(audited, [await compare(database, source, audited)])
        if results:
            result = await compare_results(database, results, audited, result)
        return result
    finally:
        database.close()


def group_and_sessions(
    content: JournalContent, topic: str, group: str | None
) -> tuple[str | None, tuple[SessionState, ...]]:
    """The group to audit, with its sessions. Raises ConfigError if none or several groups match."""
    named = content.table.select(["topic", "group"]).unify_dictionaries()
    known = named.group_by(["topic", "group"]).aggregate([])
    pairs = zip(known["topic"].to_pylist(), known["group"].to_pylist(), strict=True)
    chosen = group_of(pairs, topic, group)
    return chosen, sessions_of_group(content.sessions, chosen)


def database_of(
    journal: Table, topic: str, group: str | None, memory_limit: int | None = None
) -> AuditDatabase:
    """A database with a copy of a journal's rows of one topic and group. For ``memory_limit`` see
    :class:`AuditDatabase`."""
    database = AuditDatabase(memory_limit)
    names = [_NAMES.get(name, name) for name in journal.column_names]
    database.add("every_row", journal.rename_columns(names))
    database.put("audited", {"topic": "STRING", "of_group": "STRING"}, [(topic, group)])
    database.enumerate("session_name", "SELECT DISTINCT session FROM every_row ORDER BY session")
    database.view("audited_row", _AUDITED_ROWS)
    database.create("journal", _JOURNAL)
    database.create("attempts", _ATTEMPTS)
    database.remove("every_row")
    return database
