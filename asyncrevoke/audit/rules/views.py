"""The tables that the rules read, derived from a journal. Times are in microseconds.

Inputs are these tables. ``attempts`` has the calls of one group and topic: ``session, part, off,
key_hash, record_hash, attempt, s, f, outcome, done``, where ``s`` and ``f`` are the times at which
a call started and ended. ``journal`` has all other rows of the group and topic, with the columns of
``journal/format/schema.py``, of which ``session_id``, ``partition`` and ``offset`` are named
``session, part, off``. ``bounds`` (``part, lo, hi``) has the first offset and the end of each log.
``live`` and ``hashless`` (``session``) list sessions that are running, and sessions without hashes.
``budgets`` has ``session, budget``. For ``unaccounted`` and ``set_back`` see
``accounting.py``.

The comparison adds ``ranges`` (``part, lo, hi``, ``hi`` excluded), which are compared record by
record, and ``source``, with ``part, off, timestamp_us, key_hash, record_hash`` of the records in
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString

from asyncrevoke.audit.sql import expressions
from asyncrevoke.audit.sql.text import Sql, Text, compose, joined, literal
from asyncrevoke.journal.format.schema import BUCKET, TERMINAL

if TYPE_CHECKING:
    from collections.abc import Sequence


# A time after all others.
FOREVER = 2**62

DONE = joined(", ", map(literal, TERMINAL))
"""The outcomes of calls that completed their record."""
# The bits of a hash that are summed: the sum of a bucket stays below 2**63, however often its
# records were handled.
SUMMED = 2**40 - 1


def views(
    stall_us: int,
    hashless: Sequence[int] = (),
    *,
    incomplete: bool = False,
    vouched: bool = False,
) -> dict[str, Text]:
    """The tables that need no records of the topic. Each uses only tables before it. In the
    partitions ``hashless``, some records have no hashes. ``incomplete``: rows are missing.
    ``vouched``: offsets that no journal accounts for are compared, too."""
    return {
        **_events(incomplete=incomplete),
        **_offsets(hashless, incomplete=incomplete, vouched=vouched),
        **_handovers(stall_us),
    }


# A lower commit may follow a seek whose row is missing.
_POSSIBLE_RESETS = """
    UNION ALL SELECT commits.session, part, off, at_us
    FROM commits JOIN incomplete ON incomplete.session = commits.session
"""


def _events(*, incomplete: bool) -> dict[str, Text]:
    """Rows of the journal by kind."""
    return {
        # A small table, compared with attempts.
        "events": """
            SELECT session, seq, kind, part, off, at_us, started_us, generation, outcome, facts
            FROM journal WHERE kind IN ('ASSIGN', 'REVOKE_BEGIN', 'WITHDRAWN', 'RELEASED', 'LOST',
                                        'COMMIT', 'RESET', 'SKIPPED')
        """,
        # Accepted between ``sent_us`` and ``at_us``: a process that was stopped in between records
        # the response when it continues.
        "commits": """
            SELECT session, seq, part, off, at_us, generation,
                   least(coalesce(started_us, at_us), at_us) AS sent_us
            FROM events WHERE kind = 'COMMIT' AND outcome = 'ok'
        """,
        # Each commit twice: when it was sent, and when its response was recorded.
        "commit_times": """
            SELECT *, sent_us AS us, true AS sends FROM commits
            UNION ALL SELECT *, at_us AS us, false AS sends FROM commits
        """,
        # Rows that may have moved a committed offset back.
        "resets": compose(
            """
            SELECT session, part, off, at_us FROM events WHERE kind = 'RESET'
            UNION ALL SELECT session, part, off, at_us FROM set_back {possible}
        """,
            possible=_POSSIBLE_RESETS if incomplete else "",
        ),
        # From the assignment to the release or loss. A span without an end is still open.
        "spans": compose(
            """
            SELECT session, part, off, generation, since, until FROM (
                SELECT session, part, kind, off, generation, at_us AS since,
                       coalesce(lead(at_us) OVER own, {forever}) AS until
                FROM events WHERE kind IN ('ASSIGN', 'RELEASED', 'LOST')
                WINDOW own AS (PARTITION BY session, part ORDER BY seq))
            WHERE kind = 'ASSIGN'
        """,
            forever=FOREVER,
        ),
    }


# Partitions whose first row is not ASSIGN: the first position of their first owner is not known.
_UNASSIGNED = """
    UNION ALL SELECT part, CAST(0 AS BIGINT) AS off
    FROM (SELECT part, min(at_us) AS first, min(if(assigns, at_us, NULL)) AS assigned
          FROM (SELECT part, at_us, kind = 'ASSIGN' AS assigns
                FROM journal WHERE part IS NOT NULL AND kind <> 'RESET'
                UNION ALL SELECT part, f AS at_us, false AS assigns FROM attempts)
          GROUP BY part)
    WHERE assigned IS NULL OR first < assigned
"""


_WINDOWS = """
    SELECT bounds.part, greatest(bounds.lo, known.lo) AS lo,
           bounds.lo AS log_start, bounds.hi AS log_end,
           greatest(coalesce(stood.off, 0), coalesce(others.off, 0), bounds.lo, known.lo)
               AS committed,
           least(bounds.hi, greatest(coalesce(stood.off, 0), coalesce(others.off, 0),
                                     coalesce(tried.off, 0))) AS hi
    FROM bounds
    JOIN known ON known.part = bounds.part
    LEFT JOIN (SELECT part, max_by(off, (sent_us, at_us, seq)) AS off
               FROM commits GROUP BY part) stood ON stood.part = bounds.part
    LEFT JOIN (SELECT part, max(hi) AS off
               FROM unaccounted GROUP BY part) others ON others.part = bounds.part
    LEFT JOIN (SELECT part, max(hi) AS off FROM buckets GROUP BY part) tried
        ON tried.part = bounds.part
"""


def _offsets(hashless: Sequence[int], *, incomplete: bool, vouched: bool) -> dict[str, Text]:
    """The offsets that were handled, done and committed."""
    in_log = "done AND off >= log_lo AND off < log_hi"
    return {
        # In one pass over all attempts: their offsets, the fingerprints of done records that the
        # topic has, and the numbers of calls, of offsets with a call, and of done offsets.
        "buckets": compose(
            """
            SELECT part, {bucket} AS bucket,
                   min(off) AS lo, max(off) + 1 AS hi, {mixtures},
                   count(*) AS calls, {called} AS called, {completed} AS completed
            FROM (SELECT attempts.part, attempts.off, record_hash, done,
                         bounds.lo AS log_lo, bounds.hi AS log_hi
                  FROM attempts LEFT JOIN bounds ON bounds.part = attempts.part) placed
            GROUP BY part, {bucket}
        """,
            bucket=expressions.whole("off", BUCKET),
            mixtures=mixtures(marked(hashless), in_log),
            called=expressions.distinct(in_bucket()),
            completed=expressions.distinct(in_bucket("done")),
        ),
        # A bucket with as many calls as offsets has no offset with several.
        "crowded": "SELECT part, bucket FROM buckets WHERE calls > called",
        "known": compose(
            """
            SELECT part, min(off) AS lo
            FROM (SELECT part, off FROM spans WHERE off IS NOT NULL
                  UNION ALL SELECT part, lo AS off FROM buckets {unassigned} {unaccounted})
            GROUP BY part
        """,
            unassigned=_UNASSIGNED if incomplete else "",
            unaccounted="UNION ALL SELECT part, lo AS off FROM unaccounted" if vouched else "",
        ),
        # The first commit that covers an offset: for offsets from ``above`` on, before ``beyond``.
        "covers": """
            SELECT part, beyond, at_us, session,
                   coalesce(lag(beyond) OVER (PARTITION BY part ORDER BY beyond), 0) AS above
            FROM (SELECT part, beyond, min(at_us) AS at_us, min_by(session, at_us) AS session
                  FROM (SELECT part, session, at_us, max(off) OVER (
                            PARTITION BY part ORDER BY at_us, seq
                            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS beyond
                        FROM commits)
                  GROUP BY part, beyond)
        """,
        # From the start of the journal (or log) to the committed offset, by any client, or to the
        # last attempt.
        "windows": _WINDOWS,
    }


def _handovers(stall_us: int) -> dict[str, Text]:
    """The handovers that took longer than ``stall_us``."""
    return {
        "tenures": """
            SELECT spans.part, spans.session, spans.since, spans.until, min(a.s) AS began,
                   min_by(a.off, a.s) AS off,
                   max(CASE WHEN a.f <= spans.until THEN a.f END) AS stopped
            FROM spans JOIN attempts AS a ON a.part = spans.part AND a.session = spans.session
                 AND a.s >= spans.since AND a.s <= spans.until
            GROUP BY spans.part, spans.session, spans.since, spans.until
        """,
        # From the end of the old owner's last call to the start of the new owner's first call.
        "handovers": compose(
            """
            SELECT o.part, o.session AS giver, min_by(n.session, n.began) AS session,
                   min_by(n.off, n.began) AS off, min(n.began) AS went_on, o.stopped
            FROM tenures AS o JOIN tenures AS n ON n.part = o.part AND n.began >= o.until
            WHERE o.stopped IS NOT NULL
            GROUP BY o.part, o.session, o.since, o.until, o.stopped
            HAVING min(n.began) - o.stopped > {stall_us}
        """,
            stall_us=stall_us,
        ),
    }


def inverted(*, everywhere: bool, repeated: bool) -> Sql:
    """Records without a hash of the key that may have been handled out of order: when they began, a
    record of a lower offset had not ended, or a record of a higher offset began before they had
    ended. Unless ``everywhere``, only in partitions of ``uneven``. ``repeated``: some records have
    several calls."""
    calls: LiteralString = """
        SELECT part, off, s, CASE WHEN done THEN f END AS f, session
        FROM attempts WHERE attempt IS NOT NULL {which}
    """
    records: LiteralString = """
        SELECT part, off, min(s) AS s, min(CASE WHEN done THEN f END) AS f,
               coalesce(max(hashless.session), any_value(attempts.session)) AS session
        FROM attempts LEFT JOIN hashless ON hashless.session = attempts.session
        WHERE attempt IS NOT NULL {which} GROUP BY part, off
    """
    which: LiteralString = "" if everywhere else "AND part IN (SELECT part FROM uneven)"
    return compose(
        """
        SELECT found.part, found.off, found.s FROM (
            SELECT *, max(f) OVER (PARTITION BY part ORDER BY off
                                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS ended,
                   min(s) OVER (PARTITION BY part ORDER BY off
                                ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS begun
            FROM ({each})) AS found
        JOIN hashless ON hashless.session = found.session
        WHERE found.s < found.ended OR found.f > found.begun
    """,
        each=compose(records if repeated else calls, which=which),
    )


def in_bucket(where: LiteralString = "true") -> Sql:
    """The position of an offset in its bucket, for the rows that match ``where``."""
    return compose("CASE WHEN {where} THEN off & {last} END", where=where, last=BUCKET - 1)


def marked(hashless: Sequence[int]) -> Text:
    """The number that stands for a record in fingerprints: its hash; in the partitions
    ``hashless``, the hash of its offset."""
    if not hashless:
        return "record_hash"
    return compose(
        "if(part IN ({listed}), {hashed}, record_hash)",
        listed=joined(", ", hashless),
        hashed=expressions.hashed("off"),
    )


def mixtures(mark: Text, where: LiteralString = "true") -> Sql:
    """The fingerprint of the records that match ``where``: their number, the XOR and the sum of
    ``mark``."""
    return compose(
        """
        count(CASE WHEN {where} THEN 1 END) AS records,
        bit_xor(CASE WHEN {where} THEN {mark} END) AS mixed,
        CAST(sum(CASE WHEN {where} THEN {mark} & {summed} END) AS BIGINT) AS total
    """,
        where=where,
        mark=mark,
        summed=SUMMED,
    )


def fingerprints(table: LiteralString, hashless: Sequence[int] = ()) -> Sql:
    """The fingerprint of each bucket of a table of records."""
    bucket, mark = expressions.whole("off", BUCKET), marked(hashless)
    return compose(
        "SELECT part, {bucket} AS bucket, {mixtures} FROM {table} GROUP BY part, {bucket}",
        bucket=bucket,
        mixtures=mixtures(mark),
        table=table,
    )


MERGED = """
    SELECT part, bucket, CAST(sum(records) AS BIGINT) AS records, bit_xor(mixed) AS mixed,
           CAST(sum(total) AS BIGINT) AS total
    FROM read_fingerprints GROUP BY part, bucket
"""
"""The query for ``source_fingerprints``, from ``read_fingerprints``, in which a bucket may have
several rows."""


def flagged(*, inverted: bool = False) -> Sql:
    """The buckets in which ``source_fingerprints`` differ from the fingerprints of done records, as
    ``part, lo, hi, read``. ``read`` is the number of the topic's records in the bucket.

    One more row, without a bucket, sums ``read`` of all equal buckets. With ``inverted``, the
    result has the buckets of that table, too, with ``read`` = 0. A bucket in which a record was
    done twice also differs, and is compared record by record.
    """
    more = compose(
        """
        UNION ALL
        SELECT DISTINCT part, off - (off & {last}) AS lo, off - (off & {last}) + {size} AS hi,
               CAST(0 AS BIGINT) AS read
        FROM inverted
    """,
        last=BUCKET - 1,
        size=BUCKET,
    )
    return compose(
        """
        SELECT part, bucket * {bucket} AS lo, (bucket + 1) * {bucket} AS hi,
               CAST(sum(read) AS BIGINT) AS read
        FROM (SELECT if(differs, part, NULL) AS part, if(differs, bucket, NULL) AS bucket, read
              FROM (SELECT coalesce(source.part, done.part) AS part,
                           coalesce(source.bucket, done.bucket) AS bucket,
                           coalesce(source.records, 0) AS read,
                           source.records IS DISTINCT FROM done.records
                           OR source.mixed IS DISTINCT FROM done.mixed
                           OR source.total IS DISTINCT FROM done.total AS differs
                    FROM source_fingerprints AS source
                    FULL JOIN (SELECT * FROM buckets WHERE records > 0) done
                        ON source.part = done.part AND source.bucket = done.bucket) compared) found
        GROUP BY part, bucket
        {more}
    """,
        bucket=BUCKET,
        more=more if inverted else "",
    )
