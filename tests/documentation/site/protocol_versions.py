"""Writes the versions of requests into ``docs/reference/protocol-versions.md``.

python tests/documentation/site/protocol_versions.py
"""

from pathlib import Path

from asyncrevoke.client.protocol.dialects.versions import APIS, Api

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "protocol-versions.md"
BEGIN = "<!-- versions: begin (written by tests/documentation/site/protocol_versions.py) -->"
END = "<!-- versions: end -->"
HEADER = (
    "| request | for | versions, preferred first | what lower ones lack | if none is shared |",
    "|---|---|---|---|---|",
)


def with_versions(page: Path) -> str:
    """The page as it should be."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = [*HEADER, *(row(name, api) for name, api in APIS.items())]
    return "\n".join([f"{before}{BEGIN}", *rows, f"{END}{after}"])


def row(name: str, api: Api) -> str:
    """One request."""
    numbers = ", ".join(str(version.number) for version in api.versions)
    cells = (name, api.purpose, numbers, lost(api), api.without)
    return f"| {' | '.join(cells)} |"


def lost(api: Api) -> str:
    """What each version lacks; versions that lack the same stand together."""
    numbers: dict[str, list[int]] = {}
    for version, lacks in api.versions:
        if lacks:
            numbers.setdefault(lacks, []).append(version)
    parts = (f"{' and '.join(map(str, of))}: {lacks}" for lacks, of in numbers.items())
    return "<br>".join(parts) or "nothing"


if __name__ == "__main__":
    PAGE.write_text(with_versions(PAGE))
