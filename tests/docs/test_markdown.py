"""Markdown: lines that fit a terminal, links that lead somewhere, short first pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from repository import ROOT, anchors_of, files_of_checkout, named
from together import failures

COLUMNS_MAX = 120
LINES_MAX = {"README.md": 130, "ARCHITECTURE.md": 150}
LINK = re.compile(r"\]\(([^)\s]+)\)")


FILES = files_of_checkout("*.md")


def test_lines_fit() -> None:
    assert failures(_fits, FILES, named=named) == []


def _fits(path: Path) -> None:
    """A row of a table and an address cannot be broken."""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.startswith("|") and "://" not in line:
            assert len(line) <= COLUMNS_MAX, f"{named(path)}:{number}: {len(line)} columns"


def test_links_lead_somewhere() -> None:
    assert failures(_leads, FILES, named=named) == []


def _leads(path: Path) -> None:
    for target in LINK.findall(path.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        found = path if not name else (path.parent / name).resolve()
        assert found.exists(), f"{named(path)} links to {target}"
        if anchor and found.suffix == ".md":
            assert anchor in anchors_of(found), f"{named(path)} links to {target}"


@pytest.mark.parametrize("name", LINES_MAX)
def test_first_pages_stay_short(name: str) -> None:
    assert len((ROOT / name).read_text().splitlines()) <= LINES_MAX[name]
