"""Writes the names of a file's tests, as pytest collects them: `collect.py FILE OUT [WORDS]`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


class Names:
    """A plugin that keeps them. out: the file that they are written to, one a line"""

    def __init__(self, out: Path) -> None:
        self._out = out

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        names = [item.nodeid.partition("::")[2] for item in session.items]
        self._out.write_text("\n".join(names))


def main(file: str, out: str, *words: str) -> int:
    """Returns pytest's exit code."""
    told = ["--collect-only", "-q", *words, f"--rootdir={Path(file).parent}", file]
    return int(pytest.main(told, plugins=[Names(Path(out))]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
