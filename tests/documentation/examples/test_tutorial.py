"""The tests in the tutorial pass for a reader who types them as the pages say."""

import re
import subprocess
import sys
from pathlib import Path

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FIRST_LINE = re.compile(r"Replace the content of `test_app\.py` with the line `(.+?)`")


def test_each_page_has_tests_that_pass_in_a_project(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    module = tmp_path / "test_app.py"
    text_of_all = "".join(page.read_text("utf-8") for page in sorted(TUTORIAL.glob("[1-9]-*.md")))
    for page in ("3. A test", "4. Failures", "5. A database", "6. Results"):
        text = text_of_all.partition(f"\n## {page}\n")[2].partition("\n## ")[0]
        app, tests = BLOCK.findall(text)[:2]
        (tmp_path / "app.py").write_text(app)
        if "Add this at the end of `test_app.py`" in text:
            module.write_text(f"{module.read_text()}\n{tests}")
        else:
            replaced = FIRST_LINE.search(text.replace(" in `tests`", ""))
            assert replaced is not None, f"{page} does not say where its tests are typed"
            module.write_text(f"{replaced[1]}\n{tests}")
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, f"{page}: {ran.stdout[-2000:]}{ran.stderr[-1000:]}"
