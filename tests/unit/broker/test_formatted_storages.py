"""Storage is formatted once, and copied for brokers of the same settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.broker.process.storage import FormattedStorages

if TYPE_CHECKING:
    from pathlib import Path

CHECKPOINT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def formatted(data: Path) -> Path:
    (data / CHECKPOINT).parent.mkdir(parents=True)
    (data / CHECKPOINT).write_bytes(b"\x00features")
    (data / "meta.properties").write_text(
        "#\n#Mon Nov 30\nnode.id=1\ndirectory.id=AAAA\nversion=1\ncluster.id=first\n"
    )
    return data


def test_a_copy_has_its_own_ids_and_else_the_same_files(tmp_path: Path) -> None:
    storages = FormattedStorages()
    storages.remember("settings", formatted(tmp_path / "first"))
    second = tmp_path / "second"
    assert storages.write("settings", second, node_id=2, cluster_id="cluster-_2")
    assert (second / CHECKPOINT).read_bytes() == b"\x00features"
    lines = (second / "meta.properties").read_text().splitlines()
    (directory,) = [line for line in lines if line.startswith("directory.id=")]
    assert directory != "directory.id=AAAA"
    assert lines == [
        *("#", "#Mon Nov 30", "node.id=2"),
        *(directory, "version=1", "cluster.id=cluster-_2"),
    ]


def test_other_settings_are_formatted_by_kafka(tmp_path: Path) -> None:
    storages = FormattedStorages()
    storages.remember("settings", formatted(tmp_path / "first"))
    assert not storages.write("others", tmp_path / "second", node_id=1, cluster_id="c")
    assert not (tmp_path / "second").exists()


def test_storage_that_is_elsewhere_or_large_is_not_remembered(tmp_path: Path) -> None:
    storages = FormattedStorages()
    (tmp_path / "empty").mkdir()
    storages.remember("elsewhere", tmp_path / "empty")
    large = formatted(tmp_path / "large")
    (large / "segment").write_bytes(bytes((1 << 20) + 1))
    storages.remember("large", large)
    for settings in ("elsewhere", "large"):
        assert not storages.write(settings, tmp_path / settings, node_id=1, cluster_id="c")


def test_sixteen_storages_are_remembered(tmp_path: Path) -> None:
    storages = FormattedStorages()
    data = formatted(tmp_path / "first")
    for number in range(17):
        storages.remember(number, data)
    found = [
        storages.write(number, tmp_path / f"{number}", node_id=1, cluster_id="c")
        for number in range(17)
    ]
    assert found == [False] + [True] * 16
