"""The engine's own sources in its process: an edit is what runs, and what runs is told."""

from __future__ import annotations

import importlib
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from kept_launches import add_vouched, is_mapped, on, opened
from racegate.interpose.kernels.kept.calls import Call
from racegate.interpose.kernels.kept.memo import Memo
from racegate.targets.common.inside.serve import NotTaken
from racegate.targets.common.inside.sources import LineTracer, edit_source
from racegate.targets.common.wire import NOT_EDITED, SourceEdit

SOURCE = """\
LIMIT = 3


class Runner:
    def count(self, rows):
        total = 0
        for row in rows:
            total += row
        return min(total, LIMIT)


def kernel(value):
    return value +\\
    1


def other(value):
    return value + 2
"""
INTERPRETER = "triton.runtime.interpreter"


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    folder = tmp_path / "small_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "runner.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("small_package.runner")
    for name in ("small_package.runner", "small_package"):
        sys.modules.pop(name, None)


def edit(before: str, after: str) -> SourceEdit:
    start = SOURCE.index(before)
    return SourceEdit("small_package.runner", start, start + len(before), after)


def test_an_edit_is_what_objects_of_a_class_run(runner: Any) -> None:
    made = runner.Runner()
    assert made.count([1, 1]) == 2
    edit_source(edit("+= row", "-= row"), Memo())
    assert made.count([1, 1]) == -2


def test_a_method_that_an_observer_took_the_place_of_is_edited_too(runner: Any) -> None:
    """Observers wrap methods of engines, and call what was there."""

    def watched(plain: Callable[..., int]) -> Callable[..., int]:
        return lambda *args: plain(*args)

    runner.Runner.count = watched(runner.Runner.count)
    edit_source(edit("+= row", "-= row"), Memo())
    assert runner.Runner().count([1, 1]) == -2


@pytest.mark.parametrize(("before", "after"), [("LIMIT = 3", "LIMIT = 4"), ("Runner:", "Other:")])
def test_what_only_an_import_does_cannot_be_edited(runner: Any, before: str, after: str) -> None:
    with pytest.raises(NotTaken, match=NOT_EDITED):
        edit_source(edit(before, after), Memo())


class InterpretedFunction:
    """In the place of Triton's: what runs is made of the source that is read."""

    rewritten_fn: ClassVar[dict[Callable[[int], int], Callable[[int], int]]] = {}

    def __init__(self, fn: Callable[[int], int]) -> None:
        self.fn = fn

    def rewrite(self) -> Callable[[int], int]:
        if self.fn not in self.rewritten_fn:
            found: dict[str, Callable[[int], int]] = {}
            exec(inspect.getsource(self.fn), found)
            self.rewritten_fn[self.fn] = found[self.fn.__name__]
        return self.rewritten_fn[self.fn]


def test_an_edited_kernel_is_read_anew_also_in_captured_graphs_and_the_memo_is_told(
    runner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter: Any = ModuleType(INTERPRETER)
    interpreter.InterpretedFunction = InterpretedFunction
    monkeypatch.setitem(sys.modules, INTERPRETER, interpreter)
    monkeypatch.setattr(InterpretedFunction, "rewritten_fn", {})
    captured, other = (InterpretedFunction(one).rewrite() for one in (runner.kernel, runner.other))
    assert (captured(1), other(1)) == (2, 3)
    memo = opened()
    cells = np.array([1, 2])
    undigested = Call("runner:kernel||(1,)", on(cells).regions)
    for call in (on(cells), undigested):
        add_vouched(memo, cells, cells, call)
    edit_source(edit("value +\\\n    1", "value - 1"), memo)  # what is below stands a line higher
    launched = [InterpretedFunction(one).rewrite() for one in (runner.kernel, runner.other)]
    assert [one(1) for one in launched] == [0, 3] and (captured(1), other(1)) == (0, 3)
    assert (
        memo.find(on(cells), reaches=is_mapped) is not None
        and memo.find(undigested, reaches=is_mapped) is None
    )
    linecache.clearcache()


def test_the_lines_of_a_package_that_run_are_told_by_its_files(runner: Any) -> None:
    tracer = LineTracer("small_package")
    runner.Runner().count([1])  # before
    with tracer.tracing():
        runner.Runner().count([])
    before = sys.gettrace()
    lines = SOURCE.splitlines()
    ran = [lines[number - 1].strip() for number in tracer.lines()["runner.py"]]
    assert ran == [
        "def count(self, rows):", "total = 0", "for row in rows:", "return min(total, LIMIT)",
    ]  # fmt: skip
    assert list(tracer.lines()) == ["runner.py"] and sys.gettrace() is before


def test_the_lines_of_a_launch_are_told_by_itself_and_with_all_others(runner: Any) -> None:
    tracer = LineTracer("small_package")
    with tracer.tracing():
        tracer.set_apart()
        runner.kernel(1)
        launched = tracer.rejoin()
        runner.Runner().count([])
    together = tracer.lines()
    assert launched and set(launched["runner.py"]) < set(together["runner.py"])
    other = LineTracer("small_package")
    other.set_apart()  # a launch that never ends
    other.add(launched)
    assert other.lines() == launched and other.rejoin() == {}
