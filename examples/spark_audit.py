"""Compare a journal with its topic on Spark, for ``spark-submit``.

    spark-submit examples/spark_audit.py JOURNAL TOPIC BOOTSTRAP_SERVERS [GROUP]

Writes the report to ``report/``. The exit code is 0 for PASS, 1 for FAIL, 3 for INCONCLUSIVE.
"""

from __future__ import annotations

import sys

from asyncrevoke.spark import audit, open_session


def main(journal: str, topic: str, bootstrap_servers: str, group: str | None = None) -> int:
    """Print the status and what was found."""
    audited = audit(
        open_session(),
        journal=journal,
        source={"topic": topic, "bootstrap_servers": bootstrap_servers},
        group=group,
        out="report",
    )
    print(f"{audited.status}: {audited.done:,} records done, {audited.read:,} read back")
    for anomaly in audited.anomalies:
        print(anomaly.kind, anomaly.partition, anomaly.offset_lo, anomaly.offset_hi)
    return audited.status.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
