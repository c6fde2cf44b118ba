"""docs/decisions: numbered without a hole, of one form, on the index, and about what is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "decisions"
FILES = sorted(FOLDER.glob("[0-9]*.md"))
HEADINGS = ["## Context", "## Decision", "## Consequence"]
# Where a name in code style can come from.
SOURCES = ("harness", "reference", "kernels", "scenarios", "tests", "reports", "Makefile")
SUFFIXES = (".py", ".toml", ".md", ".j2")


def named(path: Path) -> str:
    return path.name


@cache
def sources() -> str:
    folders = [ROOT / name for name in SOURCES]
    files = [
        path
        for folder in folders
        for path in ([folder] if folder.is_file() else sorted(folder.rglob("*")))
        if path.suffix in SUFFIXES or path.name == "Makefile"
    ]
    return "\n".join(f"{path}\n{path.read_text(encoding='utf-8')}" for path in files)


def test_numbers_are_dense() -> None:
    numbers = [int(path.name[:2]) for path in FILES]
    assert numbers == list(range(1, len(FILES) + 1))


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_decision_has_one_form(path: Path) -> None:
    assert re.fullmatch(r"\d\d(-[a-z0-9]+)+\.md", path.name)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith(f"# {path.name[:2]}. ")
    assert [line for line in lines if line.startswith("## ")] == HEADINGS
    # Every heading is followed by text.
    assert all(lines[lines.index(heading) + 2].strip() for heading in HEADINGS)


def test_the_index_has_every_decision_by_number_and_title() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\* \*\*(\d\d)\*\* \[(.+)\]\((.+\.md)\):\n  \S", text, flags=re.M)
    heads = [path.read_text(encoding="utf-8").splitlines()[0] for path in FILES]
    assert listed == [
        (path.name[:2], head[6:], path.name) for path, head in zip(FILES, heads, strict=True)
    ]


@pytest.mark.parametrize("path", FILES, ids=named)
def test_what_stands_in_code_style_is_there(path: Path) -> None:
    """A name that a decision relies on was renamed or removed: the decision is to be read again."""
    for name in re.findall(r"`([^`\n]+)`", path.read_text(encoding="utf-8")):
        if re.fullmatch(r"[\w.-]+", name):
            assert all(part in sources() for part in name.split(".")), f"nothing is called {name}"
