"""docs/json.md says what the code says, and commands print what docs/json.md says."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect as types
from typer.testing import CliRunner

from json_contract import (
    CONTRACT,
    Printed,
    enum_section,
    everywhere,
    name_of,
    object_section,
    page,
)
from racegate.cli.app import app
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Verdict, exit_code
from racegate.history.replayed import EXIT_CODES, ReplayOutcome
from racegate.history.witness import load_witness, save
from racegate.report.published.schema import kinds_of, meanings
from support import SCENARIOS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "json.md"
BY_NAME = {printed.what: printed for printed in CONTRACT}
WITNESSES = SCENARIOS / "witnesses"
ONE = WITNESSES / "accepted-copy-after-row-move.witness.json"
OTHER = WITNESSES / "accepted-double-remap.witness.json"
SCRIPT = SCENARIOS / "finish_and_condense.toml"


def test_the_page_is_not_stale() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "make it again: python tests/helpers/json_contract.py docs/json.md"
    )


def test_every_link_leads_to_one_section() -> None:
    kinds = {kind for printed in CONTRACT for kind in kinds_of(printed.struct)}
    names = Counter(name_of(kind).lower() for kind in kinds)
    assert [name for name, count in names.items() if count > 1] == []


STRUCTS = [
    kind
    for kind in dict.fromkeys(kind for printed in CONTRACT for kind in kinds_of(printed.struct))
    if issubclass(kind, msgspec.Struct)
]


def test_every_field_has_a_meaning() -> None:
    sections = {struct.__name__: object_section(struct) for struct in STRUCTS}
    assert [
        f"{struct}.{entry.name}"
        for struct, section in sections.items()
        for entry in section.entries
        if not entry.meaning
    ] == []


def test_every_exit_code_and_verdict_has_a_meaning() -> None:
    for kind in (ExitCode, Verdict, ReplayOutcome):
        assert all(entry.meaning for entry in enum_section(kind).entries)


def test_exit_codes_are_those_of_the_page() -> None:
    assert exit_code([Verdict.PROVED, Verdict.BENIGN]) is ExitCode.CLEAN
    assert exit_code([Verdict.INCONCLUSIVE, Verdict.CONFLICT]) is ExitCode.FINDING
    assert exit_code([Verdict.BROKEN_HARNESS, Verdict.DIVERGENT]) is ExitCode.BROKEN_HARNESS
    assert exit_code([]) is ExitCode.INCONCLUSIVE
    assert {*EXIT_CODES.values()} == {1, 4, 5, 6}


def test_meanings_are_read_from_a_docstring() -> None:
    intro, said = meanings(
        """What it is (b: not said here).

        a: one thing; b, c: two things,
            said in two lines
        d: behind a full stop. e: the last.
        """,
        ["a", "b", "c", "d", "e", "f"],
    )
    assert intro == "What it is (b: not said here)."
    both = "two things, said in two lines"
    assert said == {
        "a": "one thing",
        "b": both,
        "c": both,
        "d": "behind a full stop",
        "e": "the last",
    }


def test_what_means_the_same_everywhere_is_used() -> None:
    fields = {name for struct in STRUCTS for name in struct.__struct_fields__}
    assert everywhere().keys() <= fields


def assert_is(value: Any, info: types.Type) -> None:
    """A decoded value has the fields of a type, in their order, and nothing else."""
    if isinstance(info, types.UnionType):
        if value is None:
            assert any(isinstance(part, types.NoneType) for part in info.types)
            return
        parts = [part for part in info.types if not isinstance(part, types.NoneType)]
        if len(parts) == 1:
            assert_is(value, parts[0])
    elif isinstance(info, types.StructType) and info.cls.__name__ != "OwnScenario":
        tag = [info.tag_field] if info.tag_field is not None else []
        assert list(value) == [*tag, *(field.encode_name for field in info.fields)], info.cls
        for field in info.fields:
            assert_is(value[field.encode_name], field.type)
    elif isinstance(info, types.VarTupleType):
        for item in value:
            assert_is(item, info.item_type)
    elif isinstance(info, types.DictType):
        for item in value.values():
            assert_is(item, info.value_type)
    else:
        msgspec.convert(value, info.cls if isinstance(info, types.EnumType) else _PLAIN[type(info)])


_PLAIN: dict[type, Any] = {
    types.StrType: str,
    types.IntType: int,
    types.FloatType: float,
    types.BoolType: bool,
    types.AnyType: Any,
    types.CustomType: Any,
    types.StructType: dict,
}


def assert_printed(value: Any, printed: Printed) -> None:
    values = value if printed.is_list else [value]
    assert values
    for one in values:
        if printed.is_headed:
            assert next(iter(one)) == "schema"
            assert one.pop("schema") == "racegate/1"
        assert_is(one, types.type_info(printed.struct))


TOY_SCRIPT = ROOT / "docs" / "examples" / "toy.toml"
TOY = (sys.executable, str(TOY_SCRIPT.with_name("toy_adapter.py")), "plain", "holds")
FAULTY = ("--fault", "accepted-copy-after-row-move")
RACE = ("d2h:accepted_counts@3", "host:condense@4")
ORDER = ("d2h:valid_count@3", "host:correct@4")
COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("run", str(SCRIPT), *FAULTY, "--explore", "ladder"),
    "replay": ("replay", str(ONE)),
    "replay, of several witnesses": ("replay", str(ONE), str(OTHER)),
    "explain": ("explain", str(ONE)),
    "explain --pair, if nothing orders the pair": (
        "explain",
        str(SCRIPT),
        *FAULTY,
        "--pair",
        *RACE,
    ),
    "explain --pair, if a path orders it": ("explain", str(SCRIPT), "--pair", *ORDER),
    "faults list": ("faults", "list"),
    "scenarios list": ("scenarios", "list", "--scenarios", str(SCENARIOS)),
    "scenarios features": ("scenarios", "features", "--count", "2"),
    "scenarios cover": ("scenarios", "cover", "--scenarios", str(TOY_SCRIPT.parent)),
    "bench": ("bench", "--seconds", "0.01"),
    "doctor": ("doctor",),
    "adapter check": ("adapter", "check", "--", *TOY),
    "adapter run": ("adapter", "run", str(TOY_SCRIPT), "--plant", "wrong_row", "--", *TOY),
    "adapter gate": ("adapter", "gate", "--scenarios", str(TOY_SCRIPT.parent), "--", *TOY),
}


@pytest.mark.parametrize("what", COMMANDS)
def test_a_command_prints_what_the_page_says(what: str) -> None:
    first, *rest = COMMANDS[what]
    # What stands behind `--` is an engine's.
    words = [*rest[:1], "--json", "-", *rest[1:]] if first == "adapter" else [*rest, "--json", "-"]
    result = CliRunner().invoke(app, [first, *words])
    # Of two toy scripts most pairs are missing.
    codes = (4,) if what == "scenarios cover" else (0, 1)
    assert result.exit_code in codes, result.output
    assert_printed(json.loads(result.stdout), BY_NAME[what])


def test_a_gate_prints_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / SCRIPT.name).write_text(SCRIPT.read_text())
    (tmp_path / ONE.name).write_text(ONE.read_text())
    options = ("--scenarios", str(tmp_path), "--must-fail", str(tmp_path), *FAULTY)
    result = CliRunner().invoke(app, ["gate", *options, "--json", "-"])
    assert_printed(json.loads(result.stdout), BY_NAME["gate"])


def test_a_campaign_prints_what_the_page_says(tmp_path: Path) -> None:
    options = ("--out", str(tmp_path), "--scenarios", "2", "--fault", "correction-partial-fields")
    result = CliRunner().invoke(app, ["fuzz", *options, "--json", "-"])
    shown = json.loads(result.stdout)
    assert shown["new"]
    assert_printed(shown, BY_NAME["fuzz"])


FILES = {
    "soak": "reports/gpu/soak.json",
    "ab": "reports/gpu/ab_align.json",
    "bench": "reports/gpu/bench.json",
    "faults matrix": "reports/faults/matrix.json",
    "faults mutate": "reports/faults/mutants.json",
    "faults halffixes": "reports/faults/halffixes.json",
    "faults effort": "reports/search/effort.json",
    "scenarios features": "reports/search/features.json",
}


def test_a_witness_is_written_as_the_page_says(tmp_path: Path) -> None:
    save(load_witness(ONE), tmp_path / "new.witness.json")
    written = json.loads((tmp_path / "new.witness.json").read_text())
    assert_printed(written, BY_NAME["files *.witness.json"])


@pytest.mark.parametrize("what", FILES)
def test_a_committed_file_holds_what_the_page_says(what: str) -> None:
    assert_printed(json.loads((ROOT / FILES[what]).read_text()), BY_NAME[what])
