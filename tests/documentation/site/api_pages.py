"""The names on the pages of the API, and those that the modules export."""

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "reference" / "api"


def documented() -> Counter[str]:
    """How often each name is on the pages."""
    text = "".join(page.read_text() for page in sorted(PAGES.glob("*.md")))
    return Counter(re.findall(r"^::: (asyncrevoke\.[\w.]+)$", text, re.MULTILINE))


def exported(module: str) -> list[str]:
    """``__all__`` of a module, read from its text: not each can be imported without its extra."""
    path = ROOT / "asyncrevoke" / module.strip(".").replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise AssertionError(f"no __all__ in {path}")
