"""Folders of Parquet files and Delta tables: two writers store no offset twice."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from unit.lake.lake_rows import COLUMNS, PARTITION, closed, rows

from asyncrevoke import ConfigError, TopicPartition
from asyncrevoke.cli.sink.plan import StorageError

parquet: Any = pytest.importorskip("pyarrow.parquet", reason="needs the extra arrow")
deltalake: Any = pytest.importorskip("deltalake", reason="needs the extra delta")

from asyncrevoke.cli.sink.delta_table import DeltaFolder  # noqa: E402
from asyncrevoke.cli.sink.parquet_folder import ParquetFolder, check_writable  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from asyncrevoke.cli.sink.store import Store

KINDS: dict[str, type[Any]] = {"parquet": ParquetFolder, "delta": DeltaFolder}
each_kind = pytest.mark.parametrize("kind", list(KINDS))


def offsets(kind: str, folder: Path) -> list[int]:
    """The offsets that a reader finds."""
    if kind == "delta":
        table: Any = deltalake.DeltaTable(str(folder)).to_pyarrow_table()
    else:
        table = parquet.read_table(folder)
    return sorted(table.column("offset").to_pylist())


def opened(kind: str, folder: Path, topic: str = "orders") -> Store:
    store: Store = KINDS[kind](folder, topic, COLUMNS)
    store.open()
    return store


@each_kind
def test_stored_offsets_are_read_back_by_a_new_owner(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "lake"
    store = opened(kind, folder)
    assert store.stored(PARTITION) == 0
    assert store.publish([closed(store, 0, 5)]) == set()
    other = TopicPartition("orders", 1)
    assert store.publish([closed(store, 5, 9), closed(store, 0, 2, other)]) == set()
    again = opened(kind, folder)
    assert (again.stored(PARTITION), again.stored(other)) == (9, 2)
    assert again.stored(TopicPartition("orders", 0)) == 0
    assert offsets(kind, folder) == [0, 0, 1, 1, *range(2, 9)]


@each_kind
def test_of_two_files_that_begin_at_an_offset_the_second_is_refused(
    kind: str, tmp_path: Path
) -> None:
    first, second = opened(kind, tmp_path), opened(kind, tmp_path)
    late, other = closed(second, 0, 8), TopicPartition("orders", 1)
    assert first.publish([closed(first, 0, 5)]) == set()
    assert second.publish([late, closed(second, 0, 1, other)]) == {PARTITION}
    late.file.discard()
    assert second.stored(PARTITION) == 5
    assert second.publish([closed(second, 5, 8)]) == set()
    assert offsets(kind, tmp_path) == [0, 0, *range(1, 8)]


def test_a_new_owner_removes_files_that_another_has_not_finished(tmp_path: Path) -> None:
    late, new = opened("parquet", tmp_path), opened("parquet", tmp_path)
    unfinished = closed(late, 0, 5)
    others = closed(late, 0, 5, TopicPartition("orders", 1))
    assert new.stored(PARTITION) == 0
    assert [path.name for path in tmp_path.iterdir()] == [others.file.path.name]
    assert late.publish([unfinished]) == {PARTITION}
    assert new.publish([closed(new, 0, 5)]) == set()


def test_a_delta_commit_whose_checkpoint_fails_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened("delta", tmp_path)
    commit: Callable[..., None] = DeltaFolder._commit

    def fails_after(*arguments: object) -> None:
        commit(*arguments)
        raise deltalake.exceptions.DeltaError("no space left for the checkpoint")

    def fails(*_: object) -> None:
        raise deltalake.exceptions.DeltaError("no space left")

    monkeypatch.setattr(DeltaFolder, "_commit", fails_after)
    assert store.publish([closed(store, 0, 5)]) == set()
    monkeypatch.setattr(DeltaFolder, "_commit", fails)
    with pytest.raises(StorageError, match="cannot be written: no space left"):
        store.publish([closed(store, 5, 6)])
    assert opened("delta", tmp_path).stored(PARTITION) == 5
    assert offsets("delta", tmp_path) == [0, 1, 2, 3, 4]


def test_files_of_a_delta_table_let_readers_skip_them(tmp_path: Path) -> None:
    store = opened("delta", tmp_path)
    store.publish([closed(store, 0, 5)])
    (entry,) = (tmp_path / "_delta_log").glob("*1.json")
    added = [json.loads(line) for line in entry.read_text().splitlines()]
    (statistics,) = [json.loads(each["add"]["stats"]) for each in added if "add" in each]
    assert statistics["numRecords"] == 5
    assert statistics["minValues"] == {"partition": 3, "offset": 0}
    assert statistics["maxValues"] == {"partition": 3, "offset": 4}
    (transaction,) = [each["txn"] for each in added if "txn" in each]
    assert (transaction["appId"], transaction["version"]) == ("asyncrevoke:orders:3", 5)


@each_kind
def test_a_folder_of_another_topic_is_refused(kind: str, tmp_path: Path) -> None:
    store = opened(kind, tmp_path)
    store.publish([closed(store, 0, 5)])
    with pytest.raises(ConfigError, match=r"choose another folder$") as refused:
        opened(kind, tmp_path, "payments")
    assert "orders" in str(refused.value)
    assert offsets(kind, tmp_path) == [0, 1, 2, 3, 4]


@each_kind
def test_a_folder_with_other_columns_is_refused(kind: str, tmp_path: Path) -> None:
    store = opened(kind, tmp_path)
    store.publish([closed(store, 0, 5)])
    with pytest.raises(ConfigError, match="has the columns value,partition,offset: choose these"):
        KINDS[kind](tmp_path, "orders", ("value",)).open()


def test_a_delta_table_and_a_folder_of_files_are_told_apart(tmp_path: Path) -> None:
    opened("delta", tmp_path / "delta")
    with pytest.raises(ConfigError, match="is a Delta table: use asyncrevoke sink delta"):
        opened("parquet", tmp_path / "delta")
    files = opened("parquet", tmp_path / "files")
    files.publish([closed(files, 0, 5)])
    with pytest.raises(ConfigError, match="has files and is no Delta table"):
        opened("delta", tmp_path / "files")
    deltalake.DeltaTable.create(str(tmp_path / "own"), rows(0, 1).schema)
    with pytest.raises(ConfigError, match="own was not created by asyncrevoke sink"):
        opened("delta", tmp_path / "own")


@pytest.mark.parametrize("content", [b"", b"PAR1"])
def test_a_damaged_file_is_named(content: bytes, tmp_path: Path) -> None:
    store = opened("parquet", tmp_path)
    store.publish([closed(store, 0, 5)])
    (path,) = tmp_path.iterdir()
    path.write_bytes(content)
    with pytest.raises(StorageError, match=f"{path.name} is damaged"):
        store.stored(PARTITION)


def test_a_file_that_another_program_has_written_again_is_named(tmp_path: Path) -> None:
    store = opened("parquet", tmp_path)
    store.publish([closed(store, 0, 5)])
    (path,) = tmp_path.iterdir()
    parquet.write_table(parquet.read_table(path), path)
    with pytest.raises(StorageError, match="does not say where its offsets end"):
        store.stored(PARTITION)


def test_a_file_system_without_links_is_found_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(PermissionError):
        check_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []
