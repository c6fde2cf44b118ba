"""What a witness keeps of a failure, how several are written, and what its reader refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from racegate.history.exit_code import ExitCode
from racegate.history.finding import Finding, FindingKind, Hazard, Race, Side, signature_of
from racegate.history.witness import (
    ENGINE_WITNESSES,
    Operation,
    Witness,
    WitnessError,
    load_witness,
    recorded_finding,
    save_all,
    save_first,
    sealed,
)
from support import SCENARIOS

PATH = SCENARIOS / "witnesses/accepted-read-before-copy.witness.json"


def finding(kind: FindingKind, signature: str, **known: Any) -> Finding:
    return Finding(kind=kind, signature=signature, message="", **known)


def side(label: str, *, is_write: bool) -> Side:
    return Side(
        operation="d2h", label=label, lane=label, is_host=False, is_write=is_write, stack=()
    )


def test_what_is_kept_is_the_finding_that_the_failure_is_known_by() -> None:
    """Wherever it stands among the others, with both sides if it is a race."""
    value = finding(FindingKind.DIVERGENCE, "value", op="kernel:b@2", other="kernel:a@1")
    race = Race(
        signature="race",
        hazard=Hazard.REUSE,
        buffer="counts",
        nbytes=8,
        count=1,
        first=side("one", is_write=True),
        second=side("two", is_write=False),
        edge="an event",
        pairs=(),
    )
    raced = finding(FindingKind.CONFLICT, "race", race=race)
    assert signature_of([raced, value]) == "value"
    found = recorded_finding([raced, value])
    assert found is not None and found.kind is FindingKind.DIVERGENCE
    assert [one.name for one in found.operations] == ["kernel:b@2", "kernel:a@1"]
    alone = recorded_finding([raced])
    assert alone is not None and alone.edge == "an event"
    assert alone.operations == (
        Operation(name="one", lane="one", is_write=True),
        Operation(name="two", lane="two", is_write=False),
    )


@pytest.mark.parametrize("count", [1, 2, 3])
def test_several_are_written_one_to_a_file_by_number(count: int, tmp_path: Path) -> None:
    one = load_witness(PATH)
    given = [msgspec.structs.replace(one, title=f"number {place}") for place in range(count)]
    paths = save_all(given, tmp_path / "found.witness.json")
    names = ["found.witness.json", "found-2.witness.json", "found-3.witness.json"]
    assert [path.name for path in paths] == names[:count]
    assert [load_witness(path).title for path in paths] == [each.title for each in given]


def test_the_first_schema_is_read_as_what_was_written(tmp_path: Path) -> None:
    one = load_witness(PATH)
    save_first(one, tmp_path / "first.witness.json")
    raw = json.loads((tmp_path / "first.witness.json").read_text())
    assert not {"subject", "polls", "finding", "drawn"} & raw.keys()
    again = load_witness(tmp_path / "first.witness.json")
    kept = msgspec.structs.replace(one, finding=None, drawn=None, polls=0)
    assert again == sealed(kept)


def holding(witness: Witness, *holds: str) -> object:
    """As its file has it, sealed, so that only its content can be refused."""
    return msgspec.to_builtins(sealed(msgspec.structs.replace(witness, holds=holds)))


@pytest.mark.parametrize("hold", ["", "a until b until c", " until forced"])
def test_a_hold_that_cannot_be_read_is_refused_whatever_the_target(hold: str) -> None:
    lenient = replace(ENGINE_WITNESSES, check=lambda witness: None)
    with pytest.raises(WitnessError, match="in memory"):
        lenient.read(holding(load_witness(PATH), hold), source="in memory")


def test_what_no_engine_can_run_is_refused() -> None:
    one = load_witness(PATH)
    engine = msgspec.structs.replace(one.scenario.engine, depth=0)
    scenario = msgspec.structs.replace(one.scenario, engine=engine)
    raw = msgspec.to_builtins(sealed(msgspec.structs.replace(one, scenario=scenario)))
    with pytest.raises(WitnessError, match="depth"):
        ENGINE_WITNESSES.read(raw, source="in memory")


def test_codes_are_those_that_the_page_names() -> None:
    """What a shell calls success is what passes, and each code means one thing but 3."""
    assert [int(code) for code in ExitCode.__members__.values()] == [0, 1, 2, 3, 3, 4, 5, 6, 7]
    assert not ExitCode.CLEAN and all(code for code in ExitCode if code is not ExitCode.CLEAN)
