"""Where a streaming query stands, by the folder that Spark has written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.spark.errors import HandoverError
from asyncrevoke.spark.handovers.group_handover import parse_offsets, read_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


def checkpoint(
    folder: Path, offsets: dict[int, str], committed: tuple[int, ...], more: str = ""
) -> Path:
    for name in ("offsets", "commits", "sources", "state"):
        (folder / name).mkdir(parents=True)
    for batch, line in offsets.items():
        text = f'v1\n{{"batchWatermarkMs":0}}\n{line}{more}'
        (folder / "offsets" / str(batch)).write_text(text)
        (folder / "offsets" / f".{batch}.crc").write_bytes(b"\0")
    for batch in committed:
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def test_the_last_completed_batch_counts_and_an_unfinished_one_is_reported(
    tmp_path: Path,
) -> None:
    batches = {9: '{"0": 3}', 10: '{"0": 7, "1": 4}', 11: '{"0": 9, "1": 9}'}
    found = read_checkpoint(checkpoint(tmp_path, batches, (9, 10)), "orders")
    assert found.batch == 10
    assert found.offsets == {TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 4}
    assert found.pending == 11


@pytest.mark.parametrize(
    ("log", "batch", "pending"),
    [(["9", "10"], 10, 11), (["9", "10", "11"], 11, None), (["11.compact", ".11.crc"], 11, None)],
)
def test_a_batch_whose_rows_are_written_counts_as_completed(
    tmp_path: Path, log: list[str], batch: int, pending: int | None
) -> None:
    batches = {9: '{"0": 3}', 10: '{"0": 7}', 11: '{"0": 9}'}
    folder, rows = checkpoint(tmp_path / "checkpoint", batches, (9, 10)), tmp_path / "stream"
    with pytest.raises(HandoverError, match="stream has no folder _spark_metadata"):
        read_checkpoint(folder, "orders", sink=rows)
    (rows / "_spark_metadata").mkdir(parents=True)
    for name in log:
        (rows / "_spark_metadata" / name).write_text("v1")
    found = read_checkpoint(folder, "orders", sink=rows)
    assert (found.batch, found.pending) == (batch, pending)
    assert found.offsets == {TopicPartition("orders", 0): 9 if batch == 11 else 7}


def test_the_connectors_offsets_name_their_topic(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {0: '{"orders":{"0":4800},"clicks":{"1":5}}'}, (0,))
    assert read_checkpoint(folder).offsets == {
        TopicPartition("orders", 0): 4800,
        TopicPartition("clicks", 1): 5,
    }
    assert read_checkpoint(folder, "clicks").offsets == {TopicPartition("clicks", 1): 5}
    with pytest.raises(HandoverError, match="offsets of orders, clicks, not of views"):
        read_checkpoint(folder, "views")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("17", "has no Kafka offsets: '17'"),
        ('{"logOffset":0}', "has no Kafka offsets"),
        ("{", "has no Kafka offsets"),
        ('{"orders":{"topic_id":"xtzWWN4bTjitpL3kfd9s5g","offsets":[0]}}', "has no Kafka offsets"),
        ('{"0": "x"}', "has no Kafka offsets"),
        ('{"orders":{"0":-2}}', "has no Kafka offsets"),
    ],
)
def test_what_is_no_offset_gets_a_sentence(line: str, sentence: str) -> None:
    with pytest.raises(HandoverError, match=sentence):
        parse_offsets(line, "orders", "here")


@pytest.mark.parametrize(
    "line",
    [
        '{"orders":{"' + "9" * 5000 + '":1}}',
        '{"orders":{"0":' + "9" * 5000 + "}}",
        '{"orders":{"0":9223372036854775808}}',
        '{"orders":{"9223372036854775808":0}}',
        '{"orders":' + "[" * 900 + "]" * 900 + "}",
        '{"orders":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"orders":{"0":' + '{"a":' * 900 + "1" + "}" * 900 + "}}",
    ],
)
def test_numbers_without_limit_and_nested_offsets_get_a_sentence(line: str) -> None:
    with pytest.raises(HandoverError, match="here has no Kafka offsets"):
        parse_offsets(line, "orders", "here")


def test_a_file_that_spark_has_not_written_gets_a_sentence(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {0: '{"0": 7}'}, (0,))
    log = folder / "offsets" / "0"
    log.write_bytes(b"v1\n{}\n\xff\xfe")
    with pytest.raises(HandoverError, match=r"0 is not text in UTF-8 \(byte 6\)"):
        read_checkpoint(folder, "orders")
    os.truncate(log, 3 * 2**30)
    with pytest.raises(HandoverError, match="has more than 67108864 bytes"):
        read_checkpoint(folder, "orders")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.timeout(10)
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {0: '{"0": 7}'}, (0,))
    (folder / "offsets" / "0").unlink()
    os.mkfifo(folder / "offsets" / "0")
    with pytest.raises(HandoverError, match="0 is not a file"):
        read_checkpoint(folder, "orders")


def test_topic_ids_are_read_where_the_checkpoint_has_them(tmp_path: Path) -> None:
    line = '{"orders":{"topic_id":"xtzWWN4bTjitpL3kfd9s5g","offsets":{"0":7}},"a":{"0":1}}'
    found = read_checkpoint(checkpoint(tmp_path, {0: line}, (0,)))
    assert found.offsets == {TopicPartition("orders", 0): 7, TopicPartition("a", 0): 1}
    assert found.topic_ids == {"orders": "xtzWWN4bTjitpL3kfd9s5g"}


def test_offsets_of_former_versions_need_the_topics_name(tmp_path: Path) -> None:
    with pytest.raises(HandoverError, match=r"do not name their topic: pass topic="):
        read_checkpoint(checkpoint(tmp_path, {0: '{"0": 7}'}, (0,)))


def test_two_sources_of_one_topic_are_rejected(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {0: '{"0": 7}'}, (0,), more='\n{"0": 8}')
    with pytest.raises(HandoverError, match="two sources of the query read orders"):
        read_checkpoint(folder, "orders")


def test_the_error_of_a_wrong_folder_names_the_right_one(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "query", {0: '{"0": 7}'}, (0,))
    with pytest.raises(HandoverError, match=r"is a part of a checkpoint: pass .*query$"):
        read_checkpoint(folder / "offsets", "orders")
    with pytest.raises(HandoverError, match=r"do you mean .*query\?"):
        read_checkpoint(tmp_path, "orders")
    with pytest.raises(HandoverError, match="pass the query's checkpointLocation"):
        read_checkpoint(tmp_path / "none")
    with pytest.raises(HandoverError, match="is not on this machine: copy the folders"):
        read_checkpoint("s3a://bucket/query", "orders")


def test_a_query_without_a_completed_batch_has_no_offsets(tmp_path: Path) -> None:
    with pytest.raises(HandoverError, match=r"no batch of the query in .* has completed"):
        read_checkpoint(checkpoint(tmp_path, {0: '{"0": 7}'}, ()), "orders")


def test_a_damaged_checkpoint_is_reported(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {0: '{"0": 7}'}, (0, 1))
    with pytest.raises(HandoverError, match="batch 1 in commits and not in offsets"):
        read_checkpoint(folder, "orders")
    (folder / "offsets" / "1").write_text("")
    with pytest.raises(HandoverError, match="is empty: the checkpoint is damaged"):
        read_checkpoint(folder, "orders")
    (folder / "offsets" / "1").write_text("v7\n{}\n{}")
    with pytest.raises(HandoverError, match="begins with 'v7'"):
        read_checkpoint(folder, "orders")
