"""The model of streams against the virtual device, the recorder and litmus programs by hand."""

from __future__ import annotations

import json
import re

import pytest

from axioms import RULES, Kind, Program, outcomes, unordered
from litmus_form import Litmus
from litmus_programs import ALL
from modelled import EPILOGUE, as_litmus, compared, drawn_program, read_program, small_programs
from repository import ROOT

DRAWN = 60
MEASURED = ROOT / "reports" / "model"
KNOWN = [(one, program) for one in ALL if (program := read_program(one.program)) is not None]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_every_small_program_does_on_the_device_what_the_model_says(length: int) -> None:
    for program in small_programs(length):
        assert compared(program).differences == (), as_litmus(program)


def test_drawn_programs_do_likewise() -> None:
    results = [compared(drawn_program(seed)) for seed in range(DRAWN)]
    assert all(result.differences == () for result in results)
    assert {result.is_racy for result in results} == {True, False}


@pytest.mark.parametrize(("litmus", "program"), KNOWN, ids=lambda one: getattr(one, "name", ""))
def test_the_model_says_what_was_written_by_hand(litmus: Litmus, program: Program) -> None:
    assert outcomes(program) == litmus.allowed
    assert bool(unordered(program)) == litmus.racy


def test_many_hand_written_programs_are_in_the_models_words() -> None:
    assert len(KNOWN) >= 30


# By rule a program that is free of races with it and racy without, and a twin that is racy with it.
LITMUS_OF_RULES = {
    "P": ("h0[0] = 1; h0[0] = 2", "s0: h0 <- d0; h0[0] = 2"),
    "I": ("h0[0] = 1; s0: d0 <- h0", "s0: d0 <- h0; h0[0] = 1"),
    "S": ("s0: d0 = 1; s0: d0 = 2", "s0: d0 = 1; s1: d0 = 2"),
    "W": ("s0: d0 = 1; s0: record e; s1: wait e; s1: d0 = 2", "s0: d0 = 1; s1: wait e; s1: d0 = 2"),
    "H": ("s0: h0 <- d0; sync s0; read h0[0]", "s0: h0 <- d0; sync s1; read h0[0]"),
    "C": ("s0: p0 <- d0; s1: d0 = 1", "s0: h0 <- d0; s1: d0 = 1"),
    "L": ("b0: d0 = 1; L: d0 = 2; b1: d0 = 3", "s0: d0 = 1; L: d0 = 2; s1: d0 = 3"),
}


def statements(text: str) -> Program:
    program = read_program(text)
    assert program is not None, text
    return program


@pytest.mark.parametrize("letter", RULES)
def test_every_rule_orders_what_no_other_does(letter: str) -> None:
    ordered, racy = map(statements, LITMUS_OF_RULES[letter])
    assert not unordered(ordered)
    assert unordered(ordered, [rule for rule in RULES if rule != letter])
    assert unordered(racy)


def test_without_a_conflict_and_a_query_there_is_one_outcome() -> None:
    """The theorem, on all small programs: what PROVED says."""
    for program in small_programs(3):
        whole = (*program, *EPILOGUE)
        if not unordered(whole) and not any(one.kind is Kind.QUERY for one in whole):
            assert len(outcomes(whole)) == 1


def test_a_wait_binds_to_the_record_before_its_call() -> None:
    late = statements("s0: record e; s0: d0 = 1; s1: wait e; s0: record e; s1: d0 = 2")
    again = statements("s0: record e; s0: d0 = 1; s0: record e; s1: wait e; s1: d0 = 2")
    assert unordered(late)
    assert not unordered(again)


def test_a_wait_before_the_first_record_gates_nothing() -> None:
    assert unordered(statements("s1: wait e; s0: d0 = 1; s0: record e; s1: d0 = 2"))


def test_what_is_staged_is_read_by_the_call_and_lands_when_it_likes() -> None:
    assert not unordered(statements("p0[0] = 1; s0: d0 <- p0; p0[0] = 2"))
    assert unordered(statements("s0: d0 <- p0; s1: d0 = 1"))


def test_a_record_behind_finished_work_is_found_complete() -> None:
    finished = statements("s0: d0 = 1; sync device; s0: record e; query e")
    unfinished = statements("s0: d0 = 1; s0: record e; query e")
    assert (outcomes(finished), outcomes(unfinished)) == ({(1,)}, {(0,), (1,)})


def test_a_wait_for_the_legacy_stream_is_one_for_blocking_streams_and_not_the_other_way() -> None:
    assert not unordered(statements("b0: h0 <- d0; sync L; read h0[0]"))
    assert unordered(statements("L: h0 <- d0; sync b0; read h0[0]"))


def test_a_record_or_wait_on_the_legacy_stream_stands_between_blocking_streams() -> None:
    assert not unordered(statements("b0: d0 = 1; L: record e; b1: d0 = 2"))
    assert not unordered(statements("s0: record e; b0: d0 = 1; L: wait e; b1: d0 = 2"))
    assert unordered(statements("b0: d0 = 1; L: wait e; b1: d0 = 2"))


def test_the_page_of_the_model_says_what_was_measured() -> None:
    page = (MEASURED / "README.md").read_text()
    gpu = json.loads((MEASURED / "gpu.json").read_text())
    virtual = json.loads((MEASURED / "virtual.json").read_text())
    for one in gpu["answers"]:
        assert f"| {one['question']} | {one['answer']} |" in page
    for one in virtual["counts"]:
        assert f"| {one['name']} | {one['programs']:,} |" in page
        assert not one["differences"]
    assert not gpu["programs"]["wrong"]
    assert f"{gpu['programs']['runs']:,} runs" in page


def test_every_rule_of_the_page_names_litmus_programs() -> None:
    page = (ROOT / "docs" / "model.md").read_text()
    rows = dict(re.findall(r"^\| \*\*(\w)\*\* \| (`.*`) \|$", page, re.MULTILINE))
    assert rows.keys() == RULES.keys()
    sources = (ROOT / "tests" / "interpose" / "litmus").glob("*.py")
    known = {name for file in sources for name in re.findall(r"^def (\w+)", file.read_text(), re.M)}
    assert {name for row in rows.values() for name in re.findall(r"`(\w+)`", row)} <= known
