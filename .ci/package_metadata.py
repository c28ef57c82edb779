"""What the package's page says besides ``pyproject.toml``: addresses, and README with whole links.

The address of the repository stands in no file: whoever builds a release passes it as
``REPOSITORY_URL``. Without it the package names no addresses, and README's links to files of the
repository are text alone, as they would lead nowhere.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_COMMENT = re.compile(r"^<!--.*?-->\n*", re.MULTILINE | re.DOTALL)
_RELATIVE_LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


class PackageMetadata(MetadataHookInterface):
    """``readme`` and ``urls`` of the project."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling when it builds an sdist or a wheel."""
        address = os.environ.get("REPOSITORY_URL", "").rstrip("/")
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": package_page(text, address, metadata["version"]),
        }
        metadata["urls"] = urls(address, os.environ.get("SITE_URL", "")) if address else {}


def package_page(readme: str, address: str, version: str) -> str:
    """README as it is shown away from the repository, with the files of this version."""

    def whole(link: re.Match[str]) -> str:
        text, path = link.groups()
        return f"[{text}]({address}/blob/v{version}/{path})" if address else text

    return _RELATIVE_LINK.sub(whole, _COMMENT.sub("", readme))


def urls(address: str, site: str) -> dict[str, str]:
    """The addresses by their labels."""
    return {
        "Documentation": site or f"{address}/blob/main/docs/index.md",
        "Source": address,
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
        "Issues": f"{address}/issues",
        "Security": f"{address}/security/policy",
    }
