"""The producer of a session's transactions, with a transactional id of its own."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.producing.record_producer import RecordProducer

if TYPE_CHECKING:
    from asyncrevoke.client.runtime.session.session import Session


def transactional_producer(session: Session) -> RecordProducer:
    """A new producer. Its transactional id has the ``group_instance_id`` of a static member, and is
    random for any other."""
    config = session.config
    own_id = config.group_instance_id or uuid.uuid4().hex
    transactional_id = f"{config.transactional_id_prefix or config.group_id}-{own_id}"
    producer = RecordProducer(
        config,
        session.requests,
        session.bootstrap,
        session.wall_clock,
        None,
        None if session.observers is None else session.observers.tracer,
        compress_in_thread=session.uses_threads,
        transactional_id=transactional_id,
        transaction_timeout=config.transaction_timeout,
    )
    log_events.TRANSACTIONS_BEGIN.write_to(session.log, transactional_id=transactional_id)
    return producer
