"""The tables that the rules read, made of a journal. SQL of DuckDB; times are microseconds.

``journal`` has the columns of ``journal/schema.py``, of one group and one topic; ``source`` has
``part, off, timestamp_us, record_hash`` of the records that were read back, which are those in
``ranges`` (``part, lo, hi``, without ``hi``); ``bounds`` has where each log starts and ends;
``setting`` has one row of parameters.
"""

from __future__ import annotations

from asyncrevoke.journal.schema import BUCKET, TERMINAL

_DONE = ", ".join(f"'{outcome}'" for outcome in TERMINAL)

VIEWS = f"""
CREATE TABLE attempts AS
    SELECT session_id AS session, seq, partition AS part, "offset" AS off, key_hash, record_hash,
           attempt, started_us AS s, at_us AS f, outcome, outcome IN ({_DONE}) AS done
    FROM journal WHERE kind = 'ATTEMPT';

CREATE TABLE commits AS
    SELECT session_id AS session, seq, partition AS part, "offset" AS off, at_us, generation
    FROM journal WHERE kind = 'COMMIT' AND outcome = 'ok';

CREATE TABLE resets AS
    SELECT session_id AS session, partition AS part, "offset" AS off, at_us
    FROM journal WHERE kind = 'RESET';

-- From being assigned to being released or lost; what has no end goes on.
CREATE TABLE spans AS
    SELECT session_id AS session, partition AS part, kind, "offset" AS off, generation,
           at_us AS since,
           coalesce(lead(at_us) OVER own, 9223372036854775807) AS until,
           lead(kind) OVER own AS ended_by
    FROM journal WHERE kind IN ('ASSIGN', 'RELEASED', 'LOST')
    WINDOW own AS (PARTITION BY session_id, partition ORDER BY seq)
    QUALIFY kind = 'ASSIGN';

-- When an offset was first covered: by the commit whose ``beyond`` is the least above it.
CREATE TABLE covers AS
    SELECT part, beyond, min(at_us) AS at_us, arg_min(session, at_us) AS session
    FROM (SELECT part, session, at_us, max(off) OVER (
              PARTITION BY part ORDER BY at_us, seq ROWS UNBOUNDED PRECEDING) AS beyond
          FROM commits)
    GROUP BY part, beyond;

CREATE TABLE first_done AS
    SELECT part, off, min(f) AS f, arg_min(session, f) AS session, count(*) AS times,
           any_value(key_hash) AS key_hash
    FROM attempts WHERE done GROUP BY part, off;

CREATE TABLE windows AS
    SELECT part, greatest(bounds.lo, known.lo) AS lo, bounds.lo AS log_start, bounds.hi AS log_end,
           greatest(coalesce(last.off, 0), bounds.lo, known.lo) AS committed,
           least(bounds.hi, greatest(coalesce(last.off, 0), coalesce(most.off, 0))) AS hi
    FROM bounds
    JOIN (SELECT part, min(off) AS lo FROM (
              SELECT part, off FROM spans WHERE off IS NOT NULL
              UNION ALL SELECT part, off FROM attempts) GROUP BY part) known USING (part)
    LEFT JOIN (SELECT part, arg_max(off, (at_us, seq)) AS off FROM commits GROUP BY part) last
        USING (part)
    LEFT JOIN (SELECT part, max(off) + 1 AS off FROM attempts GROUP BY part) most USING (part);
"""

FINGERPRINTS = f"""
SELECT part, off // {BUCKET} AS bucket, count(*) AS records, bit_xor(record_hash) AS mixed,
       sum(record_hash::HUGEINT) AS total
"""

# What was done, as if it were read from the topic.
DONE_FINGERPRINTS = f"""
{FINGERPRINTS} FROM (
    SELECT DISTINCT part, off, record_hash
    FROM attempts JOIN windows USING (part) WHERE done AND off >= windows.lo AND off < windows.hi)
GROUP BY ALL
"""

FLAGGED = f"""
SELECT part, bucket * {BUCKET} AS lo, (bucket + 1) * {BUCKET} AS hi
FROM source_fingerprints FULL JOIN ({DONE_FINGERPRINTS}) done USING (part, bucket)
WHERE (source_fingerprints.records, source_fingerprints.mixed, source_fingerprints.total)
      IS DISTINCT FROM (done.records, done.mixed, done.total)
"""
