from __future__ import annotations

import hashlib
import os
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from asyncrevoke.broker.errors import BrokerMissingError, BrokerStartError
from asyncrevoke.broker.installation.jars import (
    ATTEMPTS,
    Jar,
    Progress,
    cache_folder,
    class_path,
    fill_cache,
    installed_class_path,
    locked_jars,
    missing,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def content(name: str) -> bytes:
    return name.encode() * 1000


def jar(name: str) -> Jar:
    data = content(name)
    return Jar("server", "org.example", name, "1.0", len(data), hashlib.sha256(data).hexdigest())


class Repository:
    """Serves jars as jgo would; may serve the first tries of some of them badly."""

    def __init__(self, bad_tries: int = 0) -> None:
        self.bad_tries = bad_tries
        self.served: list[str] = []
        self._lock = threading.Lock()

    def fetch(self, wanted: Jar, folder: Path, piece: Callable[[int], None]) -> Path:
        with self._lock:
            bad = self.served.count(wanted.artifact) < self.bad_tries
            self.served.append(wanted.artifact)
        data = content("damaged") if bad else content(wanted.artifact)
        path = folder / wanted.filename
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        piece(len(data))
        return path


def test_lock_holds_the_server_with_a_log_binding_and_the_tools() -> None:
    jars = locked_jars()
    names = {(each.part, each.artifact) for each in jars}
    assert ("server", "kafka_2.13") in names
    assert ("server", "slf4j-simple") in names
    assert ("tools", "kafka-tools") in names
    assert all(len(each.sha256) == 64 and each.size > 0 for each in jars)
    assert len({each.filename for each in jars}) == len(jars)


def test_fill_brings_each_jar_once_and_reports_all_bytes(tmp_path: Path) -> None:
    jars = [jar(f"part{number}") for number in range(20)]
    repository = Repository()
    seen: list[Progress] = []
    fill_cache(jars, tmp_path / "jars", seen.append, fetch=repository.fetch)
    assert missing(jars, tmp_path / "jars") == []
    assert sorted(repository.served) == sorted(each.artifact for each in jars)
    total = sum(each.size for each in jars)
    assert seen[0] == Progress(0, total)
    assert seen[-1] == Progress(total, total)
    assert list(tmp_path.glob(".download-*")) == []


def test_full_cache_is_not_fetched_again(tmp_path: Path) -> None:
    repository = Repository()
    fill_cache([jar("one")], tmp_path, fetch=repository.fetch)
    fill_cache([jar("one")], tmp_path, fetch=repository.fetch)
    assert repository.served == ["one"]


def test_damaged_download_is_tried_again(tmp_path: Path) -> None:
    seen: list[Progress] = []
    fill_cache([jar("one")], tmp_path / "jars", seen.append, fetch=Repository(bad_tries=1).fetch)
    assert (tmp_path / "jars" / "one-1.0.jar").read_bytes() == content("one")
    assert seen[-1].done == seen[-1].total


def test_damaged_download_never_reaches_the_cache(tmp_path: Path) -> None:
    repository = Repository(bad_tries=ATTEMPTS)
    with pytest.raises(BrokerStartError, match=r"org\.example:one:1\.0.*SHA-256") as caught:
        fill_cache([jar("one")], tmp_path / "jars", fetch=repository.fetch)
    assert "KAFKA_HOME" in str(caught.value)
    assert missing([jar("one")], tmp_path / "jars") == [jar("one")]


def test_several_at_once_download_once(tmp_path: Path) -> None:
    jars = [jar("one"), jar("two")]
    repository = Repository()
    threads = [
        threading.Thread(
            target=fill_cache, args=(jars, tmp_path), kwargs={"fetch": repository.fetch}
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(repository.served) == ["one", "two"]


def test_file_of_the_wrong_size_is_missing(tmp_path: Path) -> None:
    (tmp_path / "one-1.0.jar").write_bytes(b"cut off")
    assert missing([jar("one")], tmp_path) == [jar("one")]


def test_a_jar_that_has_changed_and_kept_its_size_is_fetched_again(tmp_path: Path) -> None:
    repository = Repository()
    fill_cache([jar("one")], tmp_path, fetch=repository.fetch)
    changed = bytearray(content("one"))
    changed[-1] ^= 1
    (tmp_path / "one-1.0.jar").write_bytes(changed)
    assert missing([jar("one")], tmp_path) == [jar("one")]
    fill_cache([jar("one")], tmp_path, fetch=repository.fetch)
    assert (tmp_path / "one-1.0.jar").read_bytes() == content("one")


def test_kafka_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.4.0.jar").touch()
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    assert class_path() == str(tmp_path / "libs" / "*")


def test_kafka_home_without_jars_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BrokerStartError, match="set it to the folder of an unpacked"):
        installed_class_path(tmp_path)


def test_missing_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    with pytest.raises(BrokerMissingError, match=r"pip install 'asyncrevoke\[demo\]'"):
        cache_folder()


@pytest.mark.skipif(os.name != "posix", reason="XDG_CACHE_HOME")
def test_cache_is_in_the_users_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert cache_folder() == tmp_path / "asyncrevoke" / "kafka-4.4.0"
