"""Writes dead letters and records of retry topics with the consumer's producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.client.producing.delivery import Delivery
from asyncrevoke.client.producing.exactly_once.known_topics import wait_for_topic
from asyncrevoke.client.producing.message import PublishedRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.model import Record
    from asyncrevoke.client.producing.exactly_once.finished_records import ResultsRefused
    from asyncrevoke.client.producing.exactly_once.record_transactions import RecordTransactions
    from asyncrevoke.client.producing.record_producer import RecordProducer
    from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter


# Seconds for which a write waits for a topic that does not exist. Then the record is held without
# a worker.
_LONGEST_WAIT: Final = 5.0


class DeadLetterProducer:
    """Writes failed records with the producer that ``open_producer`` returns: the consumer's."""

    def __init__(self, open_producer: Callable[[], RecordProducer]) -> None:
        self._open_producer = open_producer

    async def send(self, topic: str, message: DeadLetter) -> None:
        """Write a message, and return when all in-sync replicas have it.

        Raises PublishError, and ConsumerClosedError if the consumer is closed meanwhile. If
        cancelled, the message may still be written.
        """
        delivery = Delivery()
        await self._open_producer().queue(
            topic,
            None,
            message.key,
            message.value,
            message.headers,
            None,
            delivery,
            longest_wait=_LONGEST_WAIT,
        )
        await delivery.wait()


class TransactionalDeadLetters:
    """Writes failed records in the transaction that commits their offsets."""

    def __init__(self, transactions: RecordTransactions) -> None:
        self._transactions = transactions

    async def send(
        self,
        topic: str,
        message: DeadLetter,
        record: Record,
        refused: ResultsRefused,
        committed: Callable[[], None],
    ) -> None:
        """Write the message for a failed record with its offset; returns when the topic is known.

        Then one of the functions is called: ``refused`` if a broker refuses the message,
        ``committed`` with the transaction; none if the partition is lost before. Raises
        PublishError, and ConsumerClosedError if the consumer is closed meanwhile. If cancelled, the
        message is not written.
        """
        await wait_for_topic(lambda: self._transactions.producer, topic, _LONGEST_WAIT)
        self._transactions.finished.begin_dead_letter(record, refused, committed).append(
            PublishedRecord(topic, None, message.key, message.value, message.headers, None)
        )
