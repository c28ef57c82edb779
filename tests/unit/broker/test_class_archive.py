"""The archive of Java classes: who is trusted with it, and when it is written."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from asyncrevoke.broker.installation.jars import ClassArchive, cached_class_archive

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    path = tmp_path / "libs" / "kafka.jar"
    path.parent.mkdir()
    path.write_bytes(b"classes")
    return path


def written(folder: Path, jar: Path) -> Path:
    """The archive that a Java has written, in the folder."""
    archive = ClassArchive(folder, jar.with_name("java"), str(jar))
    (option,) = [each for each in archive.recording() if "ArchiveClassesAtExit" in each]
    (folder / option.partition("=")[2]).write_bytes(b"archive")
    archive.keep()
    (path,) = folder.iterdir()
    return path


def options(folder: Path, jar: Path) -> tuple[str, ...]:
    return ClassArchive(folder, jar.with_name("java"), str(jar)).options()


def test_an_archive_is_used_after_a_java_has_written_it(tmp_path: Path, jar: Path) -> None:
    folder = tmp_path / "cache"
    assert options(folder, jar) == ()
    path = written(folder, jar)
    assert f"-XX:SharedArchiveFile={path}" in options(folder, jar)


def test_the_archive_of_a_whole_broker_comes_first(tmp_path: Path, jar: Path) -> None:
    folder = tmp_path / "cache"
    of_format = written(folder, jar)
    archive = ClassArchive(folder, jar.with_name("java"), str(jar))
    assert archive.options(broker=True) == ()
    (option,) = [each for each in archive.recording(broker=True) if "AtExit" in each]
    (folder / option.partition("=")[2]).write_bytes(b"more classes")
    archive.keep()
    (of_broker,) = set(folder.iterdir()) - {of_format}
    assert archive.options() == archive.options(broker=True)
    assert f"-XX:SharedArchiveFile={of_broker}" in archive.options()


def test_no_archive_is_kept_if_java_has_written_none(tmp_path: Path, jar: Path) -> None:
    archive = ClassArchive(tmp_path / "cache", jar.with_name("java"), str(jar))
    archive.recording()
    archive.keep()
    assert options(tmp_path / "cache", jar) == ()


@pytest.mark.parametrize("wildcard", [False, True])
def test_changed_jars_have_another_archive(tmp_path: Path, jar: Path, wildcard: bool) -> None:
    place = jar.with_name("*") if wildcard else jar
    written(tmp_path / "cache", place)
    assert options(tmp_path / "cache", place)
    jar.write_bytes(b"other classes")
    assert options(tmp_path / "cache", place) == ()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
@pytest.mark.parametrize("fault", ["writable by the group", "writable by all", "symbolic link"])
def test_an_archive_that_others_can_change_is_not_used(
    tmp_path: Path, jar: Path, fault: str
) -> None:
    path = written(tmp_path / "cache", jar)
    if fault == "symbolic link":
        elsewhere = tmp_path / "elsewhere"
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
    else:
        path.chmod(0o664 if fault == "writable by the group" else 0o646)
    assert options(tmp_path / "cache", jar) == ()


@pytest.mark.skipif(
    sys.platform == "win32" or os.getuid() != 0, reason="only root can give a file away"
)
def test_an_archive_of_another_user_is_not_used(tmp_path: Path, jar: Path) -> None:
    path = written(tmp_path / "cache", jar)
    os.chown(path, 65534, 65534)
    assert options(tmp_path / "cache", jar) == ()


def test_an_installation_of_the_user_needs_no_package_that_finds_a_cache(
    jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert cached_class_archive(jar.with_name("java"), str(jar)) is None
