"""Options whose values never appear in representations, because some are passwords."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Mapping


class HiddenOptions:
    """Strings by name; picklable. Its representation has the names without the values, also inside
    dataclasses, results of ``dataclasses.asdict`` and tracebacks."""

    __slots__ = ("_options",)

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = tuple(sorted(options.items()))

    def reveal(self) -> dict[str, str]:
        """All options with their values, for connecting."""
        return dict(self._options)

    @override
    def __repr__(self) -> str:
        return f"HiddenOptions({', '.join(name for name, _ in self._options)})"

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, HiddenOptions) and self._options == other._options

    @override
    def __hash__(self) -> int:
        return hash(self._options)
