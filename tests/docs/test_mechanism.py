"""docs/mechanism.md: every id, edge and buffer that the code knows is defined there, once."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields

import pytest

from racegate.engine.state.buffers import Inputs, StepOutputs, WorkBuffers
from racegate.engine.state.edges import EDGES
from racegate.faults.catalogue import FAULTS, VARIANTS
from racegate.history.observe import Boundary
from racegate.oracles import counts, invariants, ranks
from repository import ROOT, files_of_checkout

PAGE = ROOT / "docs" / "mechanism.md"
ID = re.compile(r"\b[HI]-\d\d\b")
RANGE = re.compile(r"\bI-(\d\d) to I-(\d\d)\b")


def section(heading: str) -> str:
    """The text under a heading of the page."""
    _, _, rest = PAGE.read_text().partition(f"\n## {heading}\n")
    assert rest, f"docs/mechanism.md has no section {heading}"
    return rest.partition("\n## ")[0]


def first_cells(heading: str) -> list[str]:
    """The first column of the tables of a section, without their heads."""
    rows = [line for line in section(heading).splitlines() if line.startswith("|")]
    cells = [row.split("|")[1].strip() for row in rows]
    rules = [i for i, cell in enumerate(cells) if set(cell) == {"-"}]
    heads = {i - 1 for i in rules}
    return [cell for i, cell in enumerate(cells) if i not in heads and i not in rules]


def cited() -> dict[str, str]:
    """Every id that a file outside the page names, and one such file."""
    found = {}
    for path in files_of_checkout():
        if path != PAGE and path.suffix in {".py", ".md", ".toml", ".j2", ".json"}:
            found |= dict.fromkeys(ID.findall(path.read_text()), str(path.relative_to(ROOT)))
    return found


DEFINED = Counter(first_cells("Invariants") + first_cells("Hazards"))


def test_an_id_is_defined_once() -> None:
    assert set(DEFINED.values()) == {1}
    assert all(ID.fullmatch(name) for name in DEFINED)


def test_every_id_that_is_cited_is_defined() -> None:
    missing = {name: where for name, where in cited().items() if name not in DEFINED}
    assert not missing


def test_every_invariant_of_the_oracle_is_defined() -> None:
    """Those it evaluates, and those it says another oracle judges."""
    assert invariants.__doc__ is not None
    named = {name for predicates in invariants.PREDICATES.values() for name in predicates}
    named |= set(ID.findall(invariants.__doc__))
    for first, last in RANGE.findall(invariants.__doc__):
        named |= {f"I-{number}" for number in range(int(first), int(last) + 1)}
    assert named <= set(DEFINED)


def test_the_page_says_of_which_invariants_the_oracle_evaluates_the_predicate() -> None:
    rows = [line.split("|") for line in section("Invariants").splitlines() if "| I-" in line]
    said = {row[1].strip() for row in rows if row[4].strip().startswith("invariants")}
    evaluated = {name for predicates in invariants.PREDICATES.values() for name in predicates}
    # I-23 is judged within I-22.
    assert said == evaluated | {"I-23", counts.INVARIANT, ranks.INVARIANT}


def test_every_edge_stands_in_the_table() -> None:
    assert sorted(first_cells("Edges")) == sorted(f"`{edge.name}`" for edge in EDGES)


@pytest.mark.parametrize("kind", [Inputs, WorkBuffers, StepOutputs])
def test_every_buffer_stands_in_the_tables(kind: type) -> None:
    shown = re.findall(r"`(\w+)`", " ".join(first_cells("Buffers")))
    names = {field.name for field in fields(kind)}
    if kind is StepOutputs:
        names = {f"{name}_gpu" for name in names}
    assert names <= set(shown)


def test_every_boundary_stands_in_the_table() -> None:
    assert first_cells("Boundaries") == [boundary.value for boundary in Boundary]


def test_what_stands_for_a_hazard_exists() -> None:
    known = {fault.name for fault in FAULTS + VARIANTS} | {edge.name for edge in EDGES}
    rows = [line.split("|") for line in section("Hazards").splitlines() if "| H-" in line]
    for row in rows:
        names = re.findall(r"`([a-z-]+(?:[:/][a-z-]+)?)`", row[3])
        assert set(names) <= known, row[1]
