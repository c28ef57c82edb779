"""The tables that several rules read, and the parameters that decide how they are built."""

from __future__ import annotations

from typing import Final, LiteralString, NamedTuple

from asyncrevoke.audit.rules.views import SUMMED, in_bucket
from asyncrevoke.audit.sql import expressions
from asyncrevoke.audit.sql.text import Sql, Text, compose
from asyncrevoke.journal.format.schema import BUCKET

# Offsets of a block, whose calls are compared with the first commit of the block before they are
# compared with the commit of each offset.
_BLOCK: Final = 128


class RuleParameters(NamedTuple):
    """Parameters of the rules.

    ``ordered``: all handlers of the topic run in order, by key or (``by_partition``) by partition.
    ``nulls``: records with null keys are ordered, too. ``keyless``: some sessions have no hashes of
    keys although the order is by key; the rules then use the keys of the topic, if ``keys`` says
    that they are known. ``incomplete``: rows of some sessions are missing. ``unaccounted``: no
    journal accounts for some committed offsets. ``vouched``: the journals of all sessions are
    present, so a record in these offsets without a row was not handled.
    """

    skew_us: int
    compacted: bool
    ordered: bool
    by_partition: bool
    nulls: bool
    keyless: bool = False
    keys: bool = True
    incomplete: bool = False
    unaccounted: bool = False
    vouched: bool = False


_SOUGHT: Final = """
    SELECT sought.part, max(greatest(sought.lo, coalesce(c.off, 0))) AS lo, sought.hi
    FROM (SELECT resets.part, resets.session, resets.off AS hi, resets.at_us, resets.generation,
                 max(spans.since) AS since, max_by(spans.off, spans.since) AS lo,
                 max_by(spans.generation, spans.since) AS called_in
          FROM events AS resets
          JOIN spans ON resets.session = spans.session AND resets.part = spans.part
              AND resets.at_us >= spans.since
              AND (spans.off <> resets.off OR resets.at_us > spans.since + 10000)
          WHERE resets.kind = 'RESET'
          GROUP BY resets.part, resets.session, resets.off, resets.at_us,
                   resets.generation) AS sought
    LEFT JOIN commits AS c ON c.part = sought.part AND c.at_us >= sought.since
        AND c.at_us < sought.at_us - if(c.session = sought.session, 0, {skew})
    WHERE sought.hi > sought.lo
      AND NOT EXISTS (SELECT 1 FROM spans AS other
                      WHERE other.part = sought.part AND other.session <> sought.session
                        AND other.generation > sought.called_in
                        AND other.generation < sought.generation)
    GROUP BY sought.part, sought.session, sought.since, sought.hi, sought.at_us
"""
"""The offsets that a seek may have skipped: from what the group had committed then to the target of
the seek. The row of a seek may follow the end of the ownership in which the session called it, even
the next ASSIGN row, which then has the offset of the seek; not if another session owned the
partition in between."""

TENANCIES: Final = """
    SELECT spans.part, spans.session, spans.generation, spans.since,
           least(spans.until, coalesce(last_rows.at_us, spans.until)) AS until
    FROM spans LEFT JOIN last_rows ON last_rows.session = spans.session
"""
"""The time in which a session owned a partition, up to the last row of its journal."""


_COMPARED: Final = """
    SELECT DISTINCT buckets.part, buckets.bucket
    FROM buckets JOIN windows ON windows.part = buckets.part
    LEFT JOIN ranges ON ranges.part = buckets.part
        AND ranges.lo < buckets.hi AND ranges.hi > buckets.lo
    WHERE ranges.part IS NOT NULL OR buckets.hi > windows.log_end
"""
"""The buckets with calls for records in ``ranges``, or beyond the end of the log."""

UNEVEN: Final = """
    SELECT coalesce(source_bits.part, call_bits.part) AS part,
           coalesce(source_bits.bucket, call_bits.bucket) AS bucket
    FROM source_bits FULL JOIN call_bits
        ON call_bits.part = source_bits.part AND call_bits.bucket = source_bits.bucket
    WHERE source_bits.has IS DISTINCT FROM call_bits.called
       OR call_bits.called IS DISTINCT FROM call_bits.completed
"""
"""The buckets in which the compared records, those with a call and those that are done differ."""


def definitions(terms: RuleParameters) -> dict[str, Text]:
    """The tables that several rules read, in the order in which they must be defined."""
    keyed: dict[str, Text] = {"keyed": _keyed(terms)} if terms.keyless else {}
    return {
        **keyed,
        "disordered": _disordered(terms),
        "sought": compose(_SOUGHT, skew=terms.skew_us),
        "tenancies": TENANCIES,
        **_unended(),
        **_deleted(),
        **_uneven_buckets(),
        **_late(terms.skew_us),
        **_repeated(terms.skew_us),
    }


def _uneven_buckets() -> dict[str, Text]:
    """The records and calls of ``uneven`` buckets. In all others each compared record has a done
    call, and each call has a record."""

    def bits(where: LiteralString = "true") -> Sql:
        return expressions.bits(in_bucket(where))

    bucket = expressions.whole("off", BUCKET)
    within = compose("uneven.bucket = {bucket}", bucket=bucket)
    return {
        "compared": _COMPARED,
        "call_bits": compose(
            """
            SELECT part, bucket, {called} AS called, {completed} AS completed
            FROM (SELECT compared.part, compared.bucket, off, done
                  FROM attempts JOIN compared
                      ON compared.part = attempts.part AND compared.bucket = {bucket}
                  WHERE off >= 0)
            GROUP BY part, bucket
        """,
            bucket=bucket,
            called=bits(),
            completed=bits("done"),
        ),
        "source_bits": compose(
            "SELECT part, {bucket} AS bucket, {bits} AS has FROM source GROUP BY part, {bucket}",
            bucket=bucket,
            bits=bits(),
        ),
        "uneven": UNEVEN,
        "uneven_records": compose(
            """
            SELECT source.part, source.off
            FROM source JOIN uneven ON uneven.part = source.part AND {within}
        """,
            within=within,
        ),
        "uneven_calls": compose(
            """
            SELECT attempts.*
            FROM attempts JOIN uneven ON uneven.part = attempts.part AND {within}
        """,
            within=within,
        ),
        "never_done": compose(
            """
            SELECT
                   n.part, n.off, covers.at_us, covers.session, covers.beyond
            FROM (SELECT r.part, r.off FROM uneven_records AS r
                  LEFT JOIN (SELECT part, off FROM uneven_calls WHERE done) AS completed
                      ON completed.part = r.part AND completed.off = r.off
                  WHERE completed.off IS NULL) AS n
            JOIN windows ON windows.part = n.part
            {covering}
            WHERE n.off >= windows.lo AND n.off < windows.committed
        """,
            covering=expressions.covering("n", "LEFT"),
        ),
    }


def _unended() -> dict[str, Text]:
    """The calls that started in ``unended`` buckets of a session: in all others, the calls that
    started are those that ended."""
    bucket = expressions.whole("off", BUCKET)

    def calls(began: LiteralString) -> Sql:
        call = compose("{off} % 4294967296 + {began}", off=expressions.hashed("off"), began=began)
        return compose("{call} & {summed}", call=expressions.hashed(call), summed=SUMMED)

    return {
        "unended": compose(
            """
            SELECT session, part, bucket
            FROM (SELECT session, part, {bucket} AS bucket, true AS started, {begun} AS call
                  FROM journal WHERE kind = 'START'
                  UNION ALL
                  SELECT session, part, {bucket} AS bucket, false AS started, {ended} AS call
                  FROM attempts
                  WHERE session IN (SELECT session FROM journal WHERE kind = 'START'))
            GROUP BY session, part, bucket
            HAVING bool_or(started) AND (sum(if(started, 1, -1)) <> 0
                                         OR sum(if(started, call, -call)) <> 0)
        """,
            bucket=bucket,
            begun=calls("at_us"),
            ended=calls("s"),
        ),
        "unended_calls": compose(
            """
            SELECT journal.*
            FROM journal JOIN unended ON unended.session = journal.session
                AND unended.part = journal.part AND unended.bucket = {bucket}
            WHERE kind = 'START'
        """,
            bucket=bucket,
        ),
    }


def _deleted() -> dict[str, Text]:
    """The calls for records that are no longer in the log."""
    return {
        "deleted": """
            SELECT buckets.part, buckets.bucket, windows.log_start
            FROM buckets JOIN windows ON windows.part = buckets.part
            WHERE buckets.lo < windows.log_start
        """,
        "deleted_calls": compose(
            """
            SELECT attempts.*, deleted.log_start
            FROM attempts JOIN deleted
                ON deleted.part = attempts.part AND deleted.bucket = {bucket}
            WHERE attempts.off < deleted.log_start
        """,
            bucket=expressions.whole("attempts.off", BUCKET),
        ),
    }


def _late(skew: int) -> dict[str, Text]:
    """The calls that started or ended after a commit covered their record."""
    block = compose("attempts.off - (attempts.off & {mask})", mask=_BLOCK - 1)
    least = min(skew, 0)
    return {
        "blocks": compose(
            """
            SELECT part, {block} AS off, max(greatest(s, f)) AS latest
            FROM attempts GROUP BY part, {block}
        """,
            block=block,
        ),
        # The first commit of a block's first offset is not after that of any other offset in it.
        "late_blocks": compose(
            """
            SELECT b.part, b.off, covers.at_us FROM blocks AS b {covering}
            WHERE b.latest > covers.at_us + {least}
        """,
            covering=expressions.covering("b"),
            least=least,
        ),
        "late": compose(
            """
            SELECT a.*, covers.at_us AS covered, covers.session AS coverer, covers.beyond
            FROM (SELECT attempts.* FROM attempts JOIN late_blocks
                      ON late_blocks.part = attempts.part AND late_blocks.off = {block}
                  WHERE greatest(s, f) > late_blocks.at_us + {least}) AS a {covering}
            WHERE greatest(s, f) > covers.at_us + if(a.session = covers.session, 0, {skew})
        """,
            block=block,
            covering=expressions.covering("a"),
            least=least,
            skew=skew,
        ),
        # Calls that started after a commit covered their record, without a seek back.
        "after_commit": compose(
            """
            SELECT * FROM late AS c
            WHERE (done OR attempt IS NOT NULL) AND s > covered + if(session = coverer, 0, {skew})
              AND NOT EXISTS (SELECT 1 FROM resets WHERE resets.part = c.part
                              AND resets.off <= c.off AND resets.at_us >= c.covered
                              AND resets.at_us <= c.s)
        """,
            skew=skew,
        ),
    }


def _repeated(skew: int) -> dict[str, Text]:
    """The calls for records that have several."""
    return {
        "repeated": compose(
            """
            SELECT a.* FROM attempts AS a JOIN (
                SELECT attempts.part, attempts.off
                FROM attempts JOIN crowded
                    ON crowded.part = attempts.part AND crowded.bucket = {bucket}
                GROUP BY attempts.part, attempts.off HAVING count(*) > 1) again
                ON a.part = again.part AND a.off = again.off
        """,
            bucket=expressions.whole("attempts.off", BUCKET),
        ),
        "concurrent": compose(
            """
            SELECT a.part, a.off, a.key_hash, a.session, b.session AS other, a.s, a.f,
                   b.s AS other_s, b.f AS other_f
            FROM repeated AS a JOIN repeated AS b ON a.part = b.part AND a.off = b.off
            WHERE (a.done OR a.attempt IS NOT NULL) AND (b.done OR b.attempt IS NOT NULL)
              AND a.session < b.session AND a.s + {skew} < b.f AND b.s + {skew} < a.f
        """,
            skew=skew,
        ),
        # Only of records that the rules ask for.
        "first_done": """
            SELECT attempts.part, attempts.off, min(f) AS f, min_by(session, f) AS session,
                   count(*) AS times, any_value(key_hash) AS key_hash
            FROM attempts JOIN (SELECT part, off FROM repeated
                                UNION SELECT part, off FROM late) AS asked
                ON asked.part = attempts.part AND asked.off = attempts.off
            WHERE done GROUP BY attempts.part, attempts.off
        """,
    }


def in_lanes(terms: RuleParameters) -> Sql:
    """The ordered calls with their ``lane``: a key, or NULL for the whole partition."""
    return compose(
        """
        SELECT *, if({by_partition}, NULL, key_hash) AS lane FROM {keyed}
        WHERE attempt IS NOT NULL AND {ordered}
          AND ({by_partition} OR {nulls} OR key_hash IS NOT NULL)
    """,
        by_partition=boolean(terms.by_partition),
        keyed="keyed" if terms.keyless else "attempts",
        nulls=boolean(terms.nulls),
        ordered=boolean(terms.ordered),
    )


def _disordered(terms: RuleParameters) -> Sql:
    """The lanes in which a call started before a call for an earlier record, or for the same
    record, had ended. Only these can have calls out of order. Records of one call have the same
    times."""
    return compose(
        """
        SELECT DISTINCT part, lane FROM (
            SELECT part, lane, session, s, f, lag(session) OVER earlier AS last_session,
                   lag(s) OVER earlier AS last_s, lag(f) OVER earlier AS last_f,
                   max(f) OVER (PARTITION BY part, lane ORDER BY off, s, f
                                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS ended
            FROM ({in_lanes}) calls
            WINDOW earlier AS (PARTITION BY part, lane ORDER BY off, s, f)) compared
        WHERE s < ended AND NOT (s = last_s AND f = last_f AND session = last_session)
    """,
        in_lanes=in_lanes(terms),
    )


def _keyed(terms: RuleParameters) -> Sql:
    """The calls whose keys are known."""
    return compose(
        """
        SELECT a.part, a.off, coalesce(a.key_hash, source.key_hash) AS key_hash, a.session, a.s,
               a.f, a.done, a.attempt
        FROM attempts AS a LEFT JOIN hashless ON hashless.session = a.session
        LEFT JOIN source ON source.part = a.part AND source.off = a.off
        WHERE hashless.session IS NULL OR (source.off IS NOT NULL AND {keys})
    """,
        keys=boolean(terms.keys),
    )


def boolean(value: bool) -> LiteralString:
    """``true`` or ``false``."""
    return "true" if value else "false"
