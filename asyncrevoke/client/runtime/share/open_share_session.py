"""Creates the parts of an entered consumer of a share group."""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING

from asyncrevoke.client.core.share_core import ShareCore
from asyncrevoke.client.runtime.net.channels import Channels
from asyncrevoke.client.runtime.session.open_session import (
    bootstrap_nodes,
    config_and_environment,
    open_driver,
    open_hooks,
    open_recorder,
    record_decoder,
    session_parts,
)
from asyncrevoke.client.runtime.share.share_reactions import ShareReactions
from asyncrevoke.client.runtime.share.share_session import ShareSession

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.share.acquire_limits import AcquireLimits
    from asyncrevoke.client.runtime.hooks.observers import Observer
    from asyncrevoke.client.runtime.hooks.recorders import SessionJournal
    from asyncrevoke.client.runtime.net.requests import Requests


def open_share_session(
    config: ConsumerConfig,
    topics: Iterable[str],
    observers: Sequence[Observer] = (),
    journal: SessionJournal | None = None,
    *,
    limits: AcquireLimits,
) -> ShareSession:
    """A session on the running event loop, not started yet: a new member of the share group."""
    config, environment = config_and_environment(config)
    recorder = open_recorder(config, journal, environment)
    bootstrap = bootstrap_nodes(config, environment)
    decode = (
        record_decoder(config, whole_batches=False) if environment is None else environment.decode
    )
    core = ShareCore(
        config,
        bootstrap,
        decode if recorder is None else recorder.decoder(decode),
        topics,
        member_id=_member_id(),
        limits=limits,
    )
    hooks = open_hooks(config, core, tuple, None, observers, recorder, core.held.counts)
    requests: Requests = (
        Channels(config, hooks.log) if environment is None else environment.requests
    )
    if recorder is not None:
        requests = recorder.share_requests(requests, core)
    driver = open_driver(
        config,
        core,
        requests,
        hooks,
        ShareReactions(hooks, core),
        None,
        jitter=None if environment is None else environment.jitter,
    )
    session = ShareSession(
        session_parts(config, core, driver, requests, bootstrap, hooks, environment), core
    )
    if environment is not None:
        environment.opened(session)
    return session


def _member_id() -> str:
    """A random id of 22 characters; brokers take at most 36."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
