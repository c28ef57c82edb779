"""Mistakes that type checkers find, as ``docs/how-to/editors-notebooks-windows.md`` says.

No test runs this: mypy and basedpyright read it. A comment whose mistake one of them no longer
finds is an error (``warn_unused_ignores``, ``reportUnnecessaryTypeIgnoreComment``).
"""

from asyncrevoke import Consumer, Record


async def mistakes(record: Record) -> None:
    """Each statement has one."""
    Consumer(group_idd="billing")  # type: ignore[call-arg]
    Consumer(order_by="keys")  # type: ignore[arg-type]
    consumer = Consumer("orders")
    Consumer(concurrency="64")  # type: ignore[arg-type]
    consumer.handler("orders", retry=3)  # type: ignore[arg-type]
    consumer.handler("orders", dead_leter="failed")  # type: ignore[call-arg]
    consumer.handler("orders", on_error="ignore")  # type: ignore[arg-type]
    _ = record.offest  # type: ignore[attr-defined]
    record.value.decode()  # type: ignore[union-attr]
    async for _records, _revoked in consumer:  # type: ignore[misc]
        pass
    consumer.commit()  # type: ignore[unused-coroutine]
