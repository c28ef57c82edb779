"""What a fuzz target is, where targets and kept inputs lie, and how an input is drawn."""

from __future__ import annotations

import importlib
import random
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

HERE = Path(__file__).parent
TARGETS = HERE / "targets"
CORPUS = HERE / "corpus"


@runtime_checkable
class Target(Protocol):
    """Makes inputs for one part of asyncrevoke, and checks what that part does with them.

    A target that has an attribute ``counts``, a Counter of str, gets it summed and shown.
    """

    name: ClassVar[str]

    def generate(self, random: random.Random) -> bytes:
        """Build a legal input, and damage it or not; everything drawn comes from ``random``."""
        ...

    def check(self, data: bytes) -> None:
        """Raise if asyncrevoke breaks a promise; catches expected errors by their exact type."""
        ...


def names() -> list[str]:
    """The names of all targets: those of their files."""
    return sorted(path.stem for path in TARGETS.glob("*.py") if not path.stem.startswith("_"))


def load(name: str) -> Target:
    """Make the target that ``targets/NAME.py`` defines."""
    module = importlib.import_module(f"fuzz.targets.{name}")
    for value in vars(module).values():
        if isinstance(value, type) and getattr(value, "name", None) == name:
            target = cast("object", value())
            if isinstance(target, Target):
                return target
    raise LookupError(f"targets/{name}.py has no class with name = {name!r}, generate and check")


def counts(target: Target) -> dict[str, int]:
    """What the target counted since it was made."""
    counted: Counter[str] | None = getattr(target, "counts", None)
    return dict(counted) if counted is not None else {}


def drawn(target: Target, seed: int, index: int) -> bytes:
    """Input number ``index`` of a run: the same for the same seed, whatever ran before it."""
    return target.generate(random.Random(f"{target.name} {seed} {index}"))


def kept(name: str) -> Iterator[tuple[Path, bytes]]:
    """The inputs in ``corpus/NAME``: ``*.hex`` as text with ``#`` comments, others as they are."""
    for path in sorted((CORPUS / name).glob("*")):
        if path.is_file():
            yield path, read(path)


def read(path: Path) -> bytes:
    """The input that a file holds."""
    if path.suffix != ".hex":
        return path.read_bytes()
    lines = path.read_text(encoding="ascii").splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))
