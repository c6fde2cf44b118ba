"""Mutants that are told by the values of their expressions: which have a probe, and that an edit
whose expression is alike changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from racegate.measure.evaluation.foreign.edits import release_edits
from racegate.measure.evaluation.foreign.probes import ProbedMutants, probed_mutants
from racegate.measure.evaluation.source.results import SourceMutant
from racegate.measure.evaluation.source.sources import mutants_by
from racegate.targets.common.inside.probing import ProbeTally, probe_sources

NAME = "small_probed"
# A function of three numbers and a list of them, of which everything is computed.
SOURCE = b"""\
def work(a, b, c, rows):
    found = []
    while a < min(b, 5):
        a += 1
        if a > c and (b > 2
                      or c > 1):
            found.append(max(a - b, 0))
    if not rows or len(rows) < c:
        return found
    found.append(rows[0] if a < b else a + c)
    return [one for one in rows if one != c] + found
"""
NUMBERS = st.integers(-3, 6)


def mutants_of(source: bytes) -> list[SourceMutant]:
    return mutants_by(release_edits(source), "small.py", source)


def probed(source: bytes) -> ProbedMutants:
    return probed_mutants(mutants_of(source), {"small.py": source}, {"small.py": NAME})


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    made = ModuleType(NAME)
    path = tmp_path_factory.mktemp("probed") / "small.py"
    path.write_bytes(SOURCE)
    made.__file__ = str(path)
    sys.modules[NAME] = made
    yield made
    del sys.modules[NAME]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, st.lists(NUMBERS, max_size=3)), min_size=1))
def test_an_edit_that_is_alike_changes_nothing(
    module: ModuleType, calls: list[tuple[int, int, int, list[int]]]
) -> None:
    every = {one.key: one for one in mutants_of(SOURCE)}
    plain = [called(SOURCE, one) for one in calls]
    exec(compile(SOURCE, str(module.__file__), "exec"), vars(module))
    log, found = ProbeTally(), probed(SOURCE)
    probe_sources(found.probes, log)
    assert [module.work(*one) for one in calls] == plain, "to look changes nothing"
    for key in found.of(log.alike()):
        edited = every[key].edit.apply(SOURCE)
        assert [called(edited, one) for one in calls] == plain, every[key].after


def called(source: bytes, given: tuple[int, int, int, list[int]]) -> object:
    space: dict[str, object] = {}
    exec(compile(source, "small.py", "exec"), space)
    return space["work"](*given)  # type: ignore[operator]


def test_some_of_everything_are_probed_and_lines_stay() -> None:
    found = probed(SOURCE)
    source = SOURCE
    for probe in sorted(found.probes, key=lambda one: -one.start):
        source = probe.put_into(source, "f", 0)
    assert len(source.splitlines()) == len(SOURCE.splitlines())
    compile(source, "small.py", "exec")
    texts = {SOURCE[one.start : one.end].decode() for one in found.probes}
    assert {"a < min(b, 5)", "not rows or len(rows) < c", "max(a - b, 0)"} <= texts
    assert {one.is_test for one in found.probes} == {True, False}


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("x = f(a) < 1", {"1"}),  # a call may do anything
        ("x = (a := b) < 1", {"1"}),
        ("x.b = c", set()),  # no expression
        ("x = a[b] or a[c] > 1", {"a[c] > 1"}),  # one branch reads what the other does not
        ("x = a[b.row]", set()),  # an edit reads another row, and accesses are judged
        ("x = a.count + a.prev_count", {"a.count + a.prev_count"}),
        ("x = f'{a < 1}'", set()),
    ],
)
def test_what_more_than_computes_is_run(line: str, texts: set[str]) -> None:
    source = f"def f(a, b, c):\n    {line}\n".encode()
    found = probed(source).probes
    assert {source[one.start : one.end].decode() for one in found} == texts


def test_no_other_memory_is_read() -> None:
    source = b"def f(a):\n    self.count = a.prev_count\n    return a.count + 1\n"
    assert "return a.prev_count + 1" in {one.after for one in mutants_of(source)}
    others = {other for one in probed(source).probes for other in one.others}
    assert "a.count - 1" in others and "a.prev_count + 1" not in others


def test_an_error_or_a_tensor_is_another_value() -> None:
    log = ProbeTally()
    thing = object()
    assert log.value(0, lambda: 1, lambda: 1 // 0, is_test=False) == 1
    assert log.value(1, lambda: thing, lambda: thing, is_test=True) is thing
    assert log.value(2, list, lambda: [1], is_test=False) == []
    assert log.value(3, lambda: [1], lambda: 7, is_test=True) == [1]
    assert log.value(4, lambda: 1, lambda: True, is_test=False) == 1
    assert log.alike() == (3,)


def test_one_that_no_run_comes_by_is_not_alike(module: ModuleType) -> None:
    exec(compile(SOURCE, str(module.__file__), "exec"), vars(module))
    log = ProbeTally()
    probe_sources(probed(SOURCE).probes, log)
    assert log.alike() == ()
