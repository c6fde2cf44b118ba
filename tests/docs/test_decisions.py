"""docs/decisions: at most thirty pages, of one form, on the index, and about what is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "decisions"
FILES = sorted(FOLDER.glob("[0-9]*.md"))
# A decision is a section: these open its paragraphs, in this order; the last may be left out.
PARTS = ["Why", "Decision", "Consequence", "Rejected"]
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
    assert len(FILES) <= 30, "a decision is a section of its family's page"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_decision_has_one_form(path: Path) -> None:
    assert re.fullmatch(r"\d\d(-[a-z0-9]+)+\.md", path.name)
    title, *sections = re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.M)
    assert re.fullmatch(rf"# {path.name[:2]}\. \S.*\n+", title)
    assert sections
    for section in sections:
        heading, _, text = section.partition("\n")
        parts = re.findall(r"^\*\*(\w+)\.\*\* \S", text, flags=re.M)
        assert parts in (PARTS[:3], PARTS), f"{heading}: {parts}"


def test_a_decision_is_made_once() -> None:
    headings = [line for path in FILES for line in path.read_text("utf-8").splitlines()]
    headings = [line for line in headings if line.startswith("## ")]
    assert len(headings) == len(set(headings))


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
