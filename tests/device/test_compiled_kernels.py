"""The exact kernels in C: whole runs leave the same behind, and a machine without a compiler loses
nothing but speed. Kernel by kernel they are compared in tests/kernels.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import racegate_kernels
from racegate.check.checker import Checkers
from racegate.check.forking import left_the_same
from racegate.device.virtual import compiled
from racegate.device.virtual.compiled import CorePart
from racegate.explore.strategies import held_scenarios
from racegate.faults.catalogue import FAULTS
from racegate.faults.fault import Fault
from racegate.history.run import Run
from racegate.history.schedule import Schedule
from racegate.order.native.errors import BadInput
from racegate.scenario.spec import OwnScenario
from racegate_kernels.backend import EAGER, Backend, Kernel
from support import scenario

CHECKERS = Checkers()
OF_ALL_KERNELS = ("graph-piecewise-mixed", "finish-and-condense")
KERNELS = set(EAGER.__slots__)  # type: ignore[attr-defined]


@pytest.fixture
def forgotten() -> Iterator[None]:
    """What was loaded, or why nothing could be, is forgotten before and after."""
    compiled._loaded.cache_clear()
    yield
    compiled._loaded.cache_clear()


def in_c(backend: Backend) -> set[str]:
    """The kernels that are not the eager twins."""
    return {name for name in KERNELS if getattr(backend, name) is not getattr(EAGER, name)}


def both(scenario: OwnScenario, schedule: Schedule, fault: Fault | None) -> tuple[Run, Run]:
    """A run with the kernels in C, and one with the eager twins."""
    checker = CHECKERS.of(scenario)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(compiled.COMPILED_VARIABLE, raising=False)
        assert len(in_c(compiled.host_backend())) == 10
        fast = checker.execute(schedule=schedule, fault=fault)
        patch.setenv(compiled.COMPILED_VARIABLE, "0")
        assert compiled.host_backend() is EAGER
        return fast, checker.execute(schedule=schedule, fault=fault)


@settings(max_examples=25)
@given(case=held_scenarios(), fault=st.sampled_from((None, *FAULTS)))
def test_generated_scenarios_leave_the_same_behind(
    case: tuple[OwnScenario, Schedule], fault: Fault | None
) -> None:
    """Traces, observations bit by bit, results; with faults, which bring kernels of their own and
    counts, places and blocks that are wrong.
    """
    fast, plain = both(*case, fault)
    assert repr(fast.stopped) == repr(plain.stopped)
    if fast.stopped is None:
        assert left_the_same(fast, plain)
    else:
        assert fast.trace == plain.trace


@given(data=st.data())
def test_any_counts_and_places_give_the_same(data: st.DataObject) -> None:
    """Whatever a kernel declines, before it has written anything, its eager twin does."""
    rows, columns, blocks = data.draw(st.tuples(*[st.integers(1, 4)] * 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    wild = st.integers(-3, blocks + 3) | st.sampled_from([-(2**31), 2**31 - 1, 0x7F7F7F7F])
    wilds = lambda *shape: np.array(  # noqa: E731
        data.draw(st.lists(wild, min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))),
        np.int32,
    ).reshape(shape)
    lengths = data.draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    start = np.array([0, *np.cumsum(lengths)], np.int32)
    tokens = int(start[-1]) + data.draw(st.integers(0, 2))
    words = lambda *shape: rng.integers(0, 2**32, shape, np.uint32)  # noqa: E731
    counts = (start, wilds(rows), wilds(rows), wilds(rows))
    states = (words(blocks, 2, 3, 4), wilds(rows, columns), *counts)
    pages, table = words(blocks, 2, 6), wilds(rows, columns)
    calls: dict[str, tuple[np.ndarray, ...]] = {
        "gated_delta_update": (
            *(words(tokens, 2, 4), words(tokens, 2, 4), words(tokens, 2, 3)),
            *(words(tokens, 2), words(tokens, 2), words(2), words(2), *states),
        ),
        "mamba2_update": (
            *(words(tokens, 2, 3), words(tokens, 4), words(tokens, 4), words(tokens, 2)),
            *(words(2), words(2), words(2), *states),
        ),
        "conv_update": (
            *(words(tokens, 5), words(5, 4), words(blocks, 5, 4), wilds(rows)),
            *counts,
        ),
        "paged_attention": (words(tokens, 2, 3), pages, table, start, wilds(rows), wilds(tokens)),
        "scatter_inputs": (
            *(wilds(tokens), start, wilds(rows), wilds(rows), wilds(rows)),
            wilds(rows, columns),
        ),
        "scripted_draft": (
            *(wilds(tokens), wilds(tokens), wilds(tokens), wilds(rows), wilds(rows)),
            *(wilds(rows, columns), wilds(rows), wilds(rows), rng.integers(0, 9, (2, 6), np.int32)),
            *(words(2, 6), words(blocks, 2, 1), wilds(rows, columns)),
        ),
    }
    for name, args in calls.items():
        scalars = {"vocab_size": 9} if name == "scripted_draft" else {}
        same(name, *maybe_cut(data, args), **scalars)


def maybe_cut(data: st.DataObject, args: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Arguments that fit, or one of them too short along one axis."""
    given = list(args)
    at = data.draw(st.none() | st.integers(0, len(args) - 1))
    if at is not None:
        axis = data.draw(st.integers(0, args[at].ndim - 1))
        if args[at].shape[axis] > 1:  # of nothing at all nobody says what becomes
            given[at] = np.delete(args[at], -1, axis)
    return given


def same(name: str, *args: np.ndarray, **scalars: int) -> None:
    """Both twins return the same, leave the same in their arguments, or raise the same."""
    ends = []
    for backend in (compiled._loaded().backend, EAGER):
        given = [array.copy() for array in args]
        with np.errstate(over="ignore"):
            try:
                returned = getattr(backend, name)(*given, **scalars)
            except (IndexError, ValueError) as error:
                returned = np.frombuffer(str(error).encode(), np.uint8)
        ends.append([b"" if x is None else x.tobytes() for x in (returned, *given)])
    assert ends[0] == ends[1], name


def test_each_kernel_in_c_does_the_work_of_some_run_itself(
    forgotten: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one that always leaves it to its eager twin goes unnoticed: all is right, and slow."""
    left, done = list[str](), set[str]()

    def told(name: str, kernel: Kernel) -> Kernel:
        def eager(*args: Any, **scalars: Any) -> Any:
            left.append(name)
            return kernel(*args, **scalars)

        return eager

    def noting(twin: Any) -> Kernel:
        kernel, name = plain(twin), twin.__name__

        def noted(*args: Any, **scalars: Any) -> Any:
            before = len(left)
            found = kernel(*args, **scalars)
            done.update({name} if len(left) == before else ())
            return found

        return noted

    monkeypatch.delenv(compiled.COMPILED_VARIABLE, raising=False)
    names, plain = in_c(compiled.host_backend()), compiled._kernel
    compiled._loaded.cache_clear()
    eager = {name: told(name, getattr(EAGER, name)) for name in names}
    monkeypatch.setattr(compiled, "EAGER", replace(EAGER, **eager))
    monkeypatch.setattr(compiled, "_kernel", noting)
    for name in OF_ALL_KERNELS:
        assert CHECKERS.of(scenario(name)).execute().stopped is None
    assert done == names


def test_a_kernel_whose_python_was_changed_is_judged_as_it_stands(
    forgotten: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else a gate of a change to a kernel would run what the kernel was before."""
    monkeypatch.delenv(compiled.COMPILED_VARIABLE, raising=False)
    shutil.copytree(Path(racegate_kernels.__path__[0]), tmp_path / "kernels")
    monkeypatch.setattr(racegate_kernels, "__path__", [str(tmp_path / "kernels")])
    assert compiled.host_backend() is not EAGER
    compiled._loaded.cache_clear()
    kernel = tmp_path / "kernels" / "linear.py"
    kernel.write_text(kernel.read_text().replace("bias", "bias_", 1))
    assert compiled.host_backend() is EAGER
    assert "was changed" in compiled.why_python()[CorePart.KERNELS]
    assert CorePart.CHECKPOINTS not in compiled.why_python()


def test_a_walk_whose_python_was_changed_is_walked_as_it_stands(
    forgotten: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else a change to checkpoints would go untried, and their mutants unnoticed."""
    monkeypatch.delenv(compiled.COMPILED_VARIABLE, raising=False)
    assert compiled.compiled_walk() is not None
    changed = tmp_path / "check" / "checkpoint.py"
    changed.parent.mkdir()
    text = (compiled.RACEGATE / "check" / "checkpoint.py").read_text()
    changed.write_text(text.replace("items[:] = content", "items.extend(content)"))
    monkeypatch.setattr(compiled, "RACEGATE", tmp_path)
    compiled._loaded.cache_clear()
    assert compiled.compiled_walk() is None
    assert in_c(compiled.host_backend())
    assert "was changed" in compiled.why_python()[CorePart.CHECKPOINTS]


@pytest.mark.parametrize("part", CorePart)
def test_what_is_in_c_is_of_the_python_that_is_here(part: CorePart) -> None:
    """If this fails, the Python of a part was changed: compare the twins (kernels: tests/kernels
    and this file; checkpoints: tests/check/test_checkpoint.py; both with the digest below), and
    write it into WRITTEN_AFTER.
    """
    assert compiled.python_digest(part) == compiled.WRITTEN_AFTER[part]


def test_a_core_that_is_refused_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(compiled.COMPILED_VARIABLE, raising=False)
    with compiled.refused_core():
        assert compiled.host_backend() is EAGER
        assert compiled.compiled_walk() is None
    assert in_c(compiled.host_backend())
    monkeypatch.setenv(compiled.COMPILED_VARIABLE, "0")
    with compiled.refused_core():
        assert compiled.host_backend() is EAGER
    assert compiled.host_backend() is EAGER


def test_without_a_compiler_the_eager_twins_do_the_work(
    monkeypatch: pytest.MonkeyPatch, forgotten: None
) -> None:
    def none(*given: object, **options: object) -> Path:
        raise BadInput("no C compiler")

    monkeypatch.delenv(compiled.COMPILED_VARIABLE, raising=False)
    monkeypatch.setattr(compiled, "core_library", none)
    assert compiled.host_backend() is EAGER
    assert compiled.why_python() == dict.fromkeys(CorePart, "no C compiler")
    monkeypatch.setenv(compiled.COMPILED_VARIABLE, "0")
    assert compiled.why_python() == dict.fromkeys(CorePart, "RACEGATE_COMPILED=0")


def test_a_machine_without_a_compiler_says_the_same(tmp_path: Path) -> None:
    """A whole command, with no compiler to be found and nothing kept from earlier."""
    command = (sys.executable, "-m", "racegate", "run", "finish-and-condense", "--json", "-")
    bare = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "CC": "none"}
    told = []
    for environment in (os.environ, {**os.environ, **bare}):
        done = subprocess.run(command, capture_output=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        result = msgspec.json.decode(done.stdout)
        result["stats"].pop("seconds")
        told.append(result)
    assert told[0] == told[1]
    assert not list((tmp_path / "cache").rglob("*.so"))
