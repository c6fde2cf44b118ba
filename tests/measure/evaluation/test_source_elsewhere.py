"""Mutants of C, those that run in processes which a test starts, and samples by feature."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from racegate.measure.evaluation.source.c_operators import c_edits_of
from racegate.measure.evaluation.source.exchange import compile_with, lay_over
from racegate.measure.evaluation.source.job import judges_of
from racegate.measure.evaluation.source.reach import (
    CORE,
    MUTATED,
    LineReach,
    ScriptFeatures,
    in_turns,
)
from racegate.measure.evaluation.source.results import Edit, SourceMutant, SourceOperator
from racegate.measure.evaluation.source.sources import SOURCES, mutants_of

C = b"""#include <a.h>
enum { ONE = 1 }; /* 1 < 2 */
int known(int a, struct b *c) {
    int d = 0;
    if (a < 3 && c->e) { c->f = 0; drop(c, "x + 1"); }
    for (int i = 1; i <= a; i++) break;
    c->f |= 2;
    return a == 1;
}
int cudaGetDevice(int *d) { *d = 0; return 1; }
"""
BEFORE = 'if (a < 3 && c->e) { c->f = 0; drop(c, "x + 1"); }'


def test_c_is_edited_where_a_function_does_something() -> None:
    edits = c_edits_of(C)
    assert {edit.scope for edit in edits} == {"known"}
    assert not any(edit.lines == (2, 2) for edit in edits)
    found = {(edit.operator, edit.shown(C)[1]) for edit in edits if edit.lines == (5, 5)}
    assert found == {
        (SourceOperator.COMPARISON, BEFORE.replace("<", "<=")),
        (SourceOperator.BOOLEAN, BEFORE.replace("&&", "||")),
        (SourceOperator.CONSTANT, BEFORE.replace("a < 3", "a < 4")),
        (SourceOperator.CONSTANT, BEFORE.replace("c->f = 0", "c->f = 1")),
        (SourceOperator.CONDITION, BEFORE.replace("(a < 3 && c->e)", "(!(a < 3 && c->e))")),
        (SourceOperator.BRANCH, BEFORE.replace("(a < 3 && c->e)", "(0)")),
        (SourceOperator.RESET, BEFORE.replace("c->f = 0", "(void)0")),
        (SourceOperator.STATEMENT, BEFORE.replace('drop(c, "x + 1")', "(void)0")),
    }
    others = {edit.shown(C)[1] for edit in edits if edit.lines[0] > 5}
    assert {"c->f &= 2;", "(void)0;", "return a != 1;", "return a == 0;"} <= others
    assert "for (int i = 1; i <= a; i++) (void)0;" in others


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two modules, and a library in C beside them."""
    root = tmp_path / "repository"
    inner = root / "harness" / "package" / "inner"
    inner.mkdir(parents=True)
    for file in ("package/__init__.py", "package/inner/__init__.py"):
        (root / "harness" / file).write_text("")
    (inner / "one.py").write_text("VALUE = 1\n")
    (inner / "other.py").write_text("from package.inner.one import VALUE\n")
    (inner / "size.h").write_text("enum { SIZE = 5 };\n")
    (inner / "one.c").write_text('#include "size.h"\nint one(void) { return SIZE; }\n')
    for name in ("PYTHONPATH", "CC", "XDG_CACHE_HOME"):  # restored behind the test
        monkeypatch.setenv(name, "")
    return root


def said_by(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_process_imports_the_mutant_and_all_else_as_it_is(
    repository: Path, tmp_path: Path
) -> None:
    (folder := tmp_path / "mutant").mkdir()
    lay_over(repository, "harness/package/inner/one.py", b"VALUE = 2\n", folder)
    program = "from package.inner import other; print(other.VALUE, other.__file__)"
    assert said_by(program).split() == ["2", str(folder / "package/inner/other.py")]


def test_a_process_compiles_the_mutant(repository: Path, tmp_path: Path) -> None:
    source, library = repository / "harness/package/inner/one.c", tmp_path / "one.so"
    text = source.read_bytes().replace(b"return SIZE", b"return SIZE + 1")
    compile_with(repository, "harness/package/inner/one.c", text, tmp_path)
    subprocess.run([os.environ["CC"], "-shared", str(source), "-o", str(library)], check=True)
    program = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).one())"
    assert said_by(program, str(library)) == "6\n"
    assert os.environ["XDG_CACHE_HOME"] == str(tmp_path / "cache")


def mutant(operator: SourceOperator, after: str) -> SourceMutant:
    edit = Edit(operator=operator, scope="f", lines=(3, 3), start=0, end=1, text=after)
    return SourceMutant(file="harness/racegate/a.py", edit=edit, before="x", after=after)


def test_operators_take_turns_and_a_larger_sample_contains_a_smaller_one() -> None:
    many = [mutant(SourceOperator.CONSTANT, f"x = {n}") for n in range(30)]
    few = [mutant(SourceOperator.STEP, f"f(step, {n})") for n in range(3)]
    drawn = in_turns(many + few, most=5, seed=1)
    operators = [one.edit.operator for one in drawn]
    assert operators.count(SourceOperator.STEP) == 2 and len(drawn) == 5
    assert set(drawn) < set(in_turns(many[::-1] + few, most=12, seed=1))
    assert set(in_turns(many + few, most=12, seed=1)) >= set(few)
    assert drawn != in_turns(many + few, most=5, seed=2)
    assert len(in_turns(many, most=99, seed=1)) == 30
    assert in_turns([], most=3, seed=1) == []
    idle = set(in_turns(many + few, most=12, seed=1)[::2])
    more = in_turns(many + few, most=9, seed=1, matters=lambda one: one not in idle)
    assert len(set(more) - idle) == 9 and more[-1] not in idle
    assert more == in_turns(many + few, most=len(more), seed=1)


def test_a_line_belongs_to_the_feature_that_its_scripts_have() -> None:
    slots, align = "layout = slots", "cache_mode = align"
    assert {slots, align} < set(MUTATED)
    features = ScriptFeatures({
        "a": {slots}, "b": {slots, align}, "c": {align}, "d": set(), "e": set(),
    })  # fmt: skip
    assert features.of(["a", "b"]) == slots
    assert features.of(["b", "c", "a witness"]) == align
    assert features.of(["a", "b", "c", "d", "e"]) == CORE
    assert features.of(["d"]) == CORE


def test_who_runs_processes_judges_last_and_what_is_in_c() -> None:
    source = SOURCES["interpose"]
    one = mutant(SourceOperator.STEP, "y")
    reach = LineReach(seconds={"quick": 1.0}, lines={one.file: {"quick": (3,)}})
    assert judges_of(one, source, reach) == ("quick", *source.elsewhere)
    path = Path(__file__).parents[3] / "harness/racegate/interpose/device/native/runtime.c"
    (first, *_) = mutants_of(path)
    assert judges_of(first, source, reach) == source.elsewhere
