"""What a page's invisible blocks can use: topics with records, and an end for endless loops."""

import ast
import asyncio
import contextlib
import json
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from logging_state import restored_logging

if TYPE_CHECKING:
    from asyncrevoke import Consumer, Record

ADDRESS = "localhost:9092"
T = TypeVar("T")
CONSUMERS = {"AIOKafkaConsumer", "Consumer"}


class KafkaPage:
    """One page of the documentation, and the real places behind the names that it shows."""

    FIXTURE: ClassVar = "documented_page"

    def __init__(self, broker: Callable[[], str]) -> None:
        self._broker = broker
        self._topics: dict[str, str] = {}
        self._groups: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._consumers: list[Consumer] = []
        self.handled: list[Record] = []
        self._open = contextlib.ExitStack()
        self._patch = self._open.enter_context(pytest.MonkeyPatch.context())

    # -- for invisible blocks ---------------------------------------------------------------

    @property
    def address(self) -> str:
        """The broker's address."""
        return self._broker()

    def enter(self, context: AbstractContextManager[T]) -> T:
        """Enter a context until the page's last block has run."""
        return self._open.enter_context(context)

    def environment(self, **variables: str) -> None:
        """Set variables of the environment until the page's last block has run."""
        for name, value in variables.items():
            self._patch.setenv(name, value)

    def topic(self, name: str, *, records: int = 0, partitions: int = 2) -> None:
        """Make a topic of this name with ``records`` orders in it, as JSON with a key."""
        self._topics[name] = f"{name}-{uuid.uuid4().hex[:8]}"
        asyncio.run(self._create(self._topics[name], records, partitions))

    def folders(self, *names: str) -> None:
        """Give each of these paths of the page a place for a folder, until its last block has
        run."""
        around = self.enter(tempfile.TemporaryDirectory(prefix="page-"))
        for number, name in enumerate(names):
            self._folders[name] = str(Path(around, str(number)))

    def real_folder(self, name: str) -> str:
        """The real path of one of the folders."""
        return self._folders[name]

    def real_topic(self, name: str) -> str:
        """The topic's real name."""
        return self._topics[name]

    def stop_after(self, records: int) -> Callable[..., Awaitable[None]]:
        """A handler that remembers its record, and after so many stops the block's consumers."""
        from asyncrevoke import Record

        self.handled.clear()

        async def handle(*arguments: object) -> None:
            self.handled.extend(item for item in arguments if isinstance(item, Record))
            if len(self.handled) >= records:
                self.stop()

        return handle

    def stop(self) -> None:
        """Stop the block's consumers: each counts its last batch, then its loop ends."""
        for consumer in self._consumers:
            consumer.stop()

    def committed(self, topic: str, group: str) -> int:
        """The sum of the offsets that the group of the block before has committed."""
        return asyncio.run(self._committed(self._topics[topic], self._groups[group]))

    def close(self) -> None:
        """Leave what was entered."""
        self._open.close()

    # -- for the evaluator ------------------------------------------------------------------

    def with_real_places(self, block: ast.Module) -> ast.Module:
        """The block with the names of this test's broker, topics and groups."""
        if not self._topics:
            return block
        self._groups = {}
        _Places(self.address, self._topics, self._groups, self._folders).visit(block)
        return block

    @contextlib.contextmanager
    def running_a_block(self) -> Generator[None]:
        """Knows the consumers that are made while the block runs."""
        from asyncrevoke import Consumer

        self._consumers.clear()
        original: Callable[..., None] = Consumer.__init__

        def remember(consumer: Consumer, *args: object, **options: object) -> None:
            original(consumer, *args, **options)
            self._consumers.append(consumer)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Consumer, "__init__", remember)
            yield

    # -- the broker -------------------------------------------------------------------------

    async def _create(self, topic: str, records: int, partitions: int) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, partitions, 1)])
        finally:
            await admin.close()
        async with AIOKafkaProducer(bootstrap_servers=self.address) as producer:
            for number in range(records):
                customer = f"c{number % 7}"
                order = {"id": number, "customer": customer, "amount": 10 + number}
                value = json.dumps(order).encode()
                await producer.send(topic, value, customer.encode(), number % partitions)

    async def _committed(self, topic: str, group: str) -> int:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
        await admin.start()
        try:
            offsets = await admin.list_consumer_group_offsets(group)
        finally:
            await admin.close()
        return sum(item.offset for partition, item in offsets.items() if partition.topic == topic)


class _Places(ast.NodeTransformer):
    """Puts real names of places where a page has those of an example."""

    def __init__(
        self,
        address: str,
        topics: dict[str, str],
        groups: dict[str, str],
        folders: dict[str, str],
    ) -> None:
        self._address = address
        self._topics = topics
        self._groups = groups
        self._folders = folders

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = getattr(node.func, "id", "")
        if name in CONSUMERS and not any(word.arg == "bootstrap_servers" for word in node.keywords):
            node.keywords.append(ast.keyword("bootstrap_servers", ast.Constant(self._address)))
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        if node.arg == "group_id" and isinstance(node.value, ast.Constant) and node.value.value:
            group = str(node.value.value)
            self._groups.setdefault(group, f"{group}-{uuid.uuid4().hex[:8]}")
            return ast.keyword(node.arg, ast.Constant(self._groups[group]))
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and ADDRESS in node.value:
            found = node.value.replace(ADDRESS, self._address)
            return ast.copy_location(ast.Constant(found), node)
        for name, folder in self._folders.items():
            # Also of a folder in it.
            if isinstance(node.value, str) and f"{node.value}/".startswith(f"{name}/"):
                found = folder + node.value.removeprefix(name)
                return ast.copy_location(ast.Constant(found), node)
        names = node.value.split(",") if isinstance(node.value, str) else []
        if names and all(name in self._topics for name in names):
            found = ",".join(self._topics[name] for name in names)
            return ast.copy_location(ast.Constant(found), node)
        return node


@pytest.fixture(scope="module", name=KafkaPage.FIXTURE)
def documented_page(request: pytest.FixtureRequest) -> Iterator[KafkaPage]:
    def broker() -> str:
        return str(request.getfixturevalue("kafka_broker").bootstrap_servers)

    with restored_logging():
        page = KafkaPage(broker)
        yield page
        page.close()
