"""Runs mypy and basedpyright at once, each of which uses one core; fails if either does."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

CHECKERS = ("mypy", "basedpyright")


def check(checker: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end, with its output as text."""
    return subprocess.run(  # noqa: S603 - one of CHECKERS
        [sys.executable, "-m", checker],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def main() -> int:
    """Print what each says, in the order of CHECKERS; returns 1 if one of them failed."""
    with ThreadPoolExecutor(len(CHECKERS)) as threads:
        results = list(threads.map(check, CHECKERS))
    for result in results:
        sys.stdout.write(f"{result.args[-1]}: {result.stdout}")
    return int(any(result.returncode for result in results))


if __name__ == "__main__":
    sys.exit(main())
