"""billing.py on a real Apache Kafka, by the fixture consumer_for of the pytest plugin.

pip install 'asyncrevoke[testing]'
pytest -o asyncio_mode=auto examples/test_billing.py
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from asyncrevoke import Consumer
from asyncrevoke.testing import BrokerConsumer
from examples.billing import make_consumer


async def test_each_order_is_in_the_balance(
    consumer_for: Callable[[Consumer], BrokerConsumer], tmp_path: Path
) -> None:
    path = tmp_path / "billing.sqlite"
    consumer = make_consumer("kafka-1:9092", "bills", "billing", None, path, None)
    async with consumer_for(consumer) as running:
        for cents in 100, 200, 300:
            await running.publish("bills", {"customer": "ada", "cents": cents}, key="ada")
        await running.until_done()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT * FROM balances").fetchall() == [("ada", 600)]
