"""The rules, each a query over the tables of ``views.py``.

Each gives ``part, lo, hi, key_hash, sessions, generations, at, evidence``; offsets are inclusive,
and a rule gives a row per record (they are put together afterwards).

Times of different sessions may come from different machines: they are compared with
``setting.skew``. Those of one session are those of one clock, taken at the end of a turn of its
event loop.
"""

from __future__ import annotations

from asyncrevoke.audit.catalogue import AnomalyKind

_NOTHING = "NULL::BIGINT AS key_hash"
_NO_GENERATIONS = "[]::INTEGER[] AS generations"

_NEVER_DONE = """
    SELECT source.part, source.off, covers.at_us, covers.session, covers.beyond,
           EXISTS (SELECT 1 FROM resets JOIN spans USING (session, part)
                   WHERE resets.part = source.part AND resets.off > source.off
                     AND spans.off <= source.off AND resets.at_us >= spans.since) AS sought
    FROM source JOIN windows USING (part)
    LEFT JOIN first_done ON first_done.part = source.part AND first_done.off = source.off
    ASOF LEFT JOIN covers ON covers.part = source.part AND source.off < covers.beyond
    WHERE first_done.off IS NULL AND source.off >= windows.lo AND source.off < windows.committed
"""

_COVERED = """
    SELECT attempts.*, covers.at_us AS covered, covers.session AS coverer, covers.beyond
    FROM attempts ASOF JOIN covers
        ON covers.part = attempts.part AND attempts.off < covers.beyond
"""

# Beginning after it was covered, and not because somebody went back.
_AFTER_COMMIT = f"""
    SELECT * FROM ({_COVERED}) c, setting
    WHERE s > covered + if(session = coverer, 0, skew)
      AND NOT EXISTS (SELECT 1 FROM resets WHERE resets.part = c.part AND resets.off <= c.off
                      AND resets.at_us >= c.covered AND resets.at_us <= c.s)
"""

_CONCURRENT = """
    SELECT a.part, a.off, a.key_hash, a.session, b.session AS other, a.s, a.f,
           b.s AS other_s, b.f AS other_f
    FROM attempts a JOIN attempts b USING (part, off), setting
    WHERE a.session < b.session AND a.s + skew < b.f AND b.s + skew < a.f
"""

RULES: dict[AnomalyKind, str] = {
    AnomalyKind.LOST: f"""
        SELECT part, off AS lo, off AS hi, {_NOTHING}, [session] AS sessions, {_NO_GENERATIONS},
        at_us,
               {{'committed': beyond}} AS evidence
        FROM ({_NEVER_DONE}) WHERE NOT sought
    """,
    AnomalyKind.SOUGHT_PAST: f"""
        SELECT part, off AS lo, off AS hi, {_NOTHING}, [session] AS sessions, {_NO_GENERATIONS},
        at_us,
               {{'committed': beyond}} AS evidence
        FROM ({_NEVER_DONE}) WHERE sought
    """,
    AnomalyKind.COMMIT_AHEAD: f"""
        SELECT d.part, d.off AS lo, d.off AS hi, d.key_hash,
               [covers.session, d.session] AS sessions, {_NO_GENERATIONS}, covers.at_us,
               {{'committed': beyond, 'done_us': f}} AS evidence
        FROM first_done d JOIN windows USING (part)
        ASOF JOIN covers ON covers.part = d.part AND d.off < covers.beyond, setting
        WHERE d.off >= windows.lo AND f > covers.at_us + if(covers.session = d.session, 0, skew)
    """,
    AnomalyKind.DUPLICATE_AFTER_COMMIT: f"""
        SELECT x.part, x.off AS lo, x.off AS hi, x.key_hash, [x.session, coverer] AS sessions,
               {_NO_GENERATIONS}, x.s AS at_us,
               {{'committed': beyond, 'committed_us': covered}} AS evidence
        FROM ({_AFTER_COMMIT}) x JOIN first_done d ON d.part = x.part AND d.off = x.off
        WHERE d.f < x.s
    """,
    AnomalyKind.CONCURRENT_DUPLICATE: f"""
        SELECT part, off AS lo, off AS hi, key_hash, [session, other] AS sessions,
        {_NO_GENERATIONS},
               greatest(s, other_s) AS at_us,
               {{'from_us': [s, other_s], 'to_us': [f, other_f]}} AS evidence
        FROM ({_CONCURRENT})
    """,
    AnomalyKind.REDELIVERY: f"""
        SELECT d.part, d.off AS lo, d.off AS hi, d.key_hash, list_sort(again.sessions) AS sessions,
               {_NO_GENERATIONS}, again.at_us, {{'times': times}} AS evidence
        FROM first_done d JOIN (
            SELECT part, off, list(DISTINCT session) AS sessions, max(s) AS at_us
            FROM attempts WHERE done GROUP BY part, off HAVING count(*) > 1) again USING (part, off)
        WHERE NOT EXISTS (SELECT 1 FROM ({_AFTER_COMMIT}) x WHERE x.part = d.part AND x.off = d.off)
          AND NOT EXISTS (SELECT 1 FROM ({_CONCURRENT}) x WHERE x.part = d.part AND x.off = d.off)
    """,
    # Records of one batch have one time: they are one call, and judged as one.
    AnomalyKind.KEY_ORDER: f"""
        WITH calls AS (
            SELECT part, session, s, f, min(off) AS off, max(off) AS last, bool_or(done) AS done,
                   if(by_partition, NULL, key_hash) AS lane
            FROM attempts, setting
            WHERE attempt IS NOT NULL AND ordered AND (by_partition OR nulls OR key_hash NOT NULL)
            GROUP BY ALL),
        firsts AS (
            SELECT part, lane, off, any_value(last) AS last, min(s) AS s, arg_min(session,
            s) AS session,
                   min(f) FILTER (done) AS f, arg_min(session, f) FILTER (done) AS ender
            FROM calls GROUP BY part, lane, off),
        lanes AS (
            SELECT *, max(f) OVER earlier AS before, arg_max(ender, f) OVER earlier AS blocker,
                   arg_max(off, f) OVER earlier AS earlier_off
            FROM firsts
            WINDOW earlier AS (PARTITION BY part, lane ORDER BY off
                               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
        SELECT part, off AS lo, off AS hi, lane AS key_hash, list_distinct([session,
        blocker]) AS sessions,
               {_NO_GENERATIONS}, s AS at_us,
               {{'earlier_offset': earlier_off, 'it_ended_us': before, 'begun_us': s}} AS evidence
        FROM lanes, setting WHERE s + if(session = blocker, 0, skew) < before
    """,
    AnomalyKind.OWNERSHIP: f"""
        SELECT a.part, a.off AS lo, a.off AS hi, a.key_hash, [a.session] AS sessions,
               {_NO_GENERATIONS}, s AS at_us, {{'begun_us': s, 'ended_us': f,
               'outcome': outcome}} AS evidence
        FROM attempts a, setting
        WHERE NOT EXISTS (
            SELECT 1 FROM spans
            WHERE spans.session = a.session AND spans.part = a.part AND spans.since <= a.s
              AND (spans.until >= 9223372036854775807 - skew OR a.s <= spans.until + skew)
              AND (NOT a.done OR a.attempt IS NULL OR spans.until >= 9223372036854775807 - skew
                   OR a.f <= spans.until + skew))
    """,
    AnomalyKind.STALE_COMMIT: f"""
        SELECT part, off AS lo, off AS hi, {_NOTHING}, [session, newer_session] AS sessions,
               [generation, newer] AS generations, at_us, {{'newer_us': newer_at}} AS evidence
        FROM (SELECT *, max(generation) OVER before AS newer,
                     arg_max(session, generation) OVER before AS newer_session,
                     arg_max(at_us, generation) OVER before AS newer_at
              FROM commits WHERE generation >= 0
              WINDOW before AS (PARTITION BY part ORDER BY at_us, seq
                                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)), setting
        WHERE newer > generation AND at_us > newer_at + if(session = newer_session, 0, skew)
    """,
    AnomalyKind.COMMIT_REGRESSION: f"""
        SELECT part, off AS lo, higher - 1 AS hi, {_NOTHING}, [session, higher_session] AS sessions,
               [generation] AS generations, at_us,
               {{'committed': off, 'before': higher, 'before_us': higher_at}} AS evidence
        FROM (SELECT *, max(off) OVER before AS higher, arg_max(session,
        off) OVER before AS higher_session,
                     arg_max(at_us, off) OVER before AS higher_at
              FROM commits
              WINDOW before AS (PARTITION BY part ORDER BY at_us, seq
                                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) c, setting
        WHERE off < higher AND at_us > higher_at + if(session = higher_session, 0, skew)
          AND NOT EXISTS (SELECT 1 FROM resets WHERE resets.part = c.part AND resets.off <= c.off
                          AND resets.at_us >= c.higher_at AND resets.at_us <= c.at_us)
    """,
    AnomalyKind.PHANTOM: f"""
        SELECT a.part, a.off AS lo, a.off AS hi, any_value(a.key_hash) AS key_hash,
               list_sort(list(DISTINCT a.session)) AS sessions, {_NO_GENERATIONS},
               min(a.s) AS at_us,
               {{'log_end': any_value(log_end)}} AS evidence
        FROM attempts a JOIN windows USING (part), setting
        WHERE NOT compacted AND a.off >= log_start
          AND (a.off >= log_end
               OR EXISTS (SELECT 1 FROM ranges WHERE ranges.part = a.part
                          AND a.off >= ranges.lo AND a.off < ranges.hi))
          AND NOT EXISTS (SELECT 1 FROM source WHERE source.part = a.part AND source.off = a.off)
        GROUP BY a.part, a.off
    """,
    AnomalyKind.CONTENT_MISMATCH: f"""
        SELECT a.part, a.off AS lo, a.off AS hi, a.key_hash, [a.session] AS sessions,
        {_NO_GENERATIONS},
               a.f AS at_us, {{'handled': a.record_hash,
               'in_the_topic': source.record_hash}} AS evidence
        FROM attempts a JOIN source USING (part, off) WHERE a.record_hash <> source.record_hash
    """,
    AnomalyKind.ORPHAN: f"""
        SELECT partition AS part, "offset" AS lo, "offset" AS hi, key_hash,
        [session_id] AS sessions,
               {_NO_GENERATIONS}, at_us, {{'begun_us': at_us}} AS evidence
        FROM journal b
        WHERE kind = 'START' AND session_id NOT IN (SELECT session FROM live)
          AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.session = b.session_id
                          AND a.part = b.partition AND a.off = b."offset" AND a.s = b.at_us)
    """,
    AnomalyKind.REVOCATION_OVERRUN: f"""
        SELECT part, NULL::BIGINT AS lo, NULL::BIGINT AS hi, {_NOTHING}, [session] AS sessions,
               [generation] AS generations, at_us,
               {{'seconds': (until - at_us) / 1e6, 'budget': budget}} AS evidence
        FROM (SELECT session_id AS session, partition AS part, kind, at_us, generation,
                     lead(at_us) OVER own AS until, lead(kind) OVER own AS next
              FROM journal WHERE kind IN ('REVOKE_BEGIN', 'WITHDRAWN', 'RELEASED', 'LOST')
              WINDOW own AS (PARTITION BY session_id, partition ORDER BY seq))
        JOIN budgets USING (session)
        WHERE kind = 'REVOKE_BEGIN' AND next IN ('RELEASED', 'LOST')
          AND until - at_us > budget * 1e6
    """,
    # Records that waited: the first one to go on with was there when the last one before it ended.
    AnomalyKind.STALL: f"""
        SELECT part, off AS lo, off AS hi, {_NOTHING}, [before, session] AS sessions,
               {_NO_GENERATIONS}, stopped AS at_us,
               {{'seconds': (went_on - stopped) / 1e6}} AS evidence
        FROM handovers JOIN source USING (part, off)
        WHERE source.timestamp_us <= stopped
    """,
    AnomalyKind.UNVERIFIABLE: f"""
        SELECT a.part, min(a.off) AS lo, max(a.off) AS hi, {_NOTHING}, []::VARCHAR[] AS sessions,
               {_NO_GENERATIONS}, min(a.s) AS at_us,
               {{'attempts': count(*), 'log_start': any_value(log_start)}} AS evidence
        FROM attempts a JOIN windows USING (part) WHERE a.off < log_start GROUP BY a.part
    """,
    AnomalyKind.PENDING: f"""
        SELECT part, committed AS lo, log_end - 1 AS hi, {_NOTHING}, []::VARCHAR[] AS sessions,
               {_NO_GENERATIONS}, NULL::BIGINT AS at_us,
               {{'done_beyond': (SELECT count(*) FROM first_done d
                                WHERE d.part = windows.part AND d.off >= committed)}} AS evidence
        FROM windows WHERE log_end > committed
    """,
}

# The last end before a partition went, and the first beginning after it came to somebody.
HANDOVERS = """
CREATE TABLE handovers AS
    SELECT o.part, o.session AS before, n.session, n.off, n.s AS went_on, stopped
    FROM (SELECT spans.part, spans.session, spans.until,
                 (SELECT max(f) FROM attempts a WHERE a.part = spans.part
                   AND a.session = spans.session
                  AND a.f <= spans.until) AS stopped
          FROM spans WHERE spans.until < 9223372036854775807) o
    ASOF JOIN (SELECT part, session, off, s FROM attempts) n
        ON n.part = o.part AND n.s >= o.until, setting
    WHERE stopped IS NOT NULL AND n.s - stopped > stall_us
"""
