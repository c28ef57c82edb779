"""A Delta table with the records of one topic."""

from __future__ import annotations

import json
import time
import uuid
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from asyncrevoke.cli.sink.file_names import StoredFile
from asyncrevoke.cli.sink.parquet_file import ParquetFile
from asyncrevoke.cli.sink.parquet_folder import check_writable
from asyncrevoke.cli.sink.plan import StorageError
from asyncrevoke.cli.sink.store import schema
from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from asyncrevoke.cli.sink.store import Closed
    from asyncrevoke.client.model import TopicPartition

_TOPIC: Final = "asyncrevoke.topic"
# Another member has committed each time in between.
_MOST_ATTEMPTS: Final = 100


class DeltaFolder:
    """The table of one topic. Its methods raise OSError and StorageError.

    One commit adds the files of all partitions. For each, it has an application transaction whose
    version is the offset where the partition's rows end. Delta refuses a commit if another one,
    since the table was read, has a transaction of the same application.
    """

    together = True

    def __init__(self, folder: Path, topic: str, columns: Sequence[str]) -> None:
        if find_spec("deltalake") is None:
            raise ConfigError(
                'a Delta table needs the package deltalake: pip install "asyncrevoke[cli,delta]"'
            )
        self._folder = folder
        self._topic = topic
        self._columns = list(columns)
        # pyarrow has no types.
        self._schema: Any = schema(columns)

    def open(self) -> None:
        """Create the table, or check that it is of this topic."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        self._folder.mkdir(parents=True, exist_ok=True)
        if not DeltaTable.is_deltatable(str(self._folder)):
            if any(self._folder.iterdir()):
                raise ConfigError(f"{self._folder} has files and is no Delta table: choose another")
            check_writable(self._folder)
            # Another member may create it at the same time.
            try:
                DeltaTable.create(
                    str(self._folder),
                    self._schema,
                    configuration={_TOPIC: self._topic},
                    raise_if_key_not_exists=False,
                )
            except DeltaError as error:
                if not DeltaTable.is_deltatable(str(self._folder)):
                    raise StorageError(f"{self._folder}: {error}") from error
        check_writable(self._folder)
        table = self._table()
        topic = table.metadata().configuration.get(_TOPIC)
        if topic != self._topic:
            of = "was not created by asyncrevoke sink" if topic is None else f"has topic {topic}"
            raise ConfigError(f"the Delta table {self._folder} {of}: choose another folder")
        names = [field.name for field in table.schema().fields]
        if names != self._columns:
            raise ConfigError(
                f"the Delta table {self._folder} has the columns {','.join(names)}: choose these, "
                "or another folder"
            )

    def stored(self, partition: TopicPartition) -> int:
        """The version of the partition's last transaction."""
        return _version(self._table(), partition)

    def create(self, partition: TopicPartition, first: int) -> ParquetFile:
        """A file that the table does not have yet. One that it never gets is removed by Delta's
        VACUUM: here, a member that has lost the partition could still add it."""
        name = StoredFile(partition, first).name.removesuffix(".parquet")
        return ParquetFile(self._folder / f"{name}-{uuid.uuid4().hex}.parquet", self._schema)

    def publish(self, files: Sequence[Closed]) -> set[TopicPartition]:
        """Commit them, without those of partitions in which another member has committed."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        current: list[Closed] = []
        reason: Exception | None = None
        for _ in range(_MOST_ATTEMPTS):
            table = self._table()
            current = [each for each in files if _version(table, each.partition) == each.first]
            if not current:
                break
            try:
                self._commit(table, current)
            except CommitFailedError as error:
                reason = error
                continue
            except DeltaError as error:
                # What follows a commit, a checkpoint, may have failed: not the commit.
                table = self._table()
                if any(_version(table, each.partition) != each.next for each in current):
                    raise StorageError(f"{self._folder} cannot be written: {error}") from error
            break
        else:
            raise StorageError(f"{self._folder} cannot be written: {reason}") from reason
        return {each.partition for each in files} - {each.partition for each in current}

    def _commit(self, table: Any, files: Sequence[Closed]) -> None:  # noqa: ANN401 - from deltalake
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        added = [
            AddAction(
                each.file.path.name, each.size, {}, now, True, _statistics(each, self._columns)
            )
            for each in files
        ]
        transactions = [Transaction(application(each.partition), each.next) for each in files]
        table.create_write_transaction(
            added,
            "append",
            self._schema,
            commit_properties=CommitProperties(app_transactions=transactions),
        )

    def _table(self) -> Any:  # noqa: ANN401 - half typed
        """The table as it is now."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            return DeltaTable(str(self._folder))
        except DeltaError as error:
            raise StorageError(f"{self._folder}: {error}") from error


def application(partition: TopicPartition) -> str:
    """The id of the application transactions of a partition."""
    return f"asyncrevoke:{partition.topic}:{partition.partition}"


def _version(table: Any, partition: TopicPartition) -> int:  # noqa: ANN401 - half typed
    version = table.transaction_version(application(partition))
    return 0 if version is None else int(version)


def _statistics(closed: Closed, columns: Sequence[str]) -> str:
    """What lets readers skip a file."""
    names: dict[str, tuple[int, int]] = {
        "partition": (closed.partition.partition, closed.partition.partition),
        "offset": (closed.first, closed.next - 1),
    }
    present = {name: names[name] for name in names if name in columns}
    return json.dumps(
        {
            "numRecords": closed.rows,
            "minValues": {name: low for name, (low, _) in present.items()},
            "maxValues": {name: high for name, (_, high) in present.items()},
            "nullCount": dict.fromkeys(present, 0),
        }
    )
