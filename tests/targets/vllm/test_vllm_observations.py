"""The table of what is observed of a runner, and what it is counted from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import observations
import pytest
from observations import CellCount, FieldCount, changed, count, entry, fields_of, page, whole

from racegate.interpose.outcome import Ending, Observation, Plan
from racegate.scenario.spec import Scenario
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.wire import KEPT, Observed, ReleaseRun, Wrong
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode

CELL = Cell(release="1.0", runner=ModelRunner.V2, mode=StateMode.NONE)
WRONG = Wrong(step=3, what="length of request A in row 0", used=4, true=5)
# In the order of one step: what the scheduler says, what the model is given, what is kept.
STEP: dict[str, dict[str, object]] = {
    "scheduled": {"requests": [["A", 0, [1]]]},
    "inputs": {"tokens": [5, 6], "rows": ["A"], "size": 2, "step": 1},
    f"{KEPT} in the runner": {"a": 1, "b": 2},
}
FIELDS = [
    "scheduled.computed", "scheduled.blocks", "inputs.tokens", "rows", f"{KEPT} in the runner",
]  # fmt: skip


def run(*steps: dict[str, dict[str, object]], ending: Ending = Ending.FINISHED) -> ReleaseRun:
    """A run whose observations are those of some steps, with one value that is not true."""
    inner = tuple(
        Observation(f"step {number} {boundary}", "", msgspec.json.encode(values).decode())
        for number, values_by in enumerate(steps, 1)
        for boundary, values in values_by.items()
    )
    return ReleaseRun(
        ending=ending, message="where it stood", inner=inner, compared={"inputs.tokens": 2}
    )


class Runner:
    """An engine that answers as one step, in which a kind of tensor that is wrong changes tokens.

    untrue: names of scenarios in which a value is not true; late: those whose run does not end
    """

    def __init__(self, *, untrue: str = "", late: str = "") -> None:
        self.untrue = untrue
        self.late = late

    def run(
        self, scenario: Scenario, plan: Plan, *, plant: Observed | None = None, spoils: str = ""
    ) -> ReleaseRun:
        assert not plan.holds and not plan.is_recording
        is_spoilt = spoils == "input_ids"
        step = STEP | {"inputs": STEP["inputs"] | {"tokens": [5, 7]}} if is_spoilt else STEP
        is_late = scenario.name == self.late or (plant is not None and self.late == "plant")
        told = run(step, ending=Ending.TIMED_OUT if is_late else Ending.FINISHED)
        wrong = (WRONG,) if scenario.name == self.untrue else ()
        return msgspec.structs.replace(told, untrue=wrong)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Runner], CellCount]:
    """Counts what a runner shows, in all scenarios that there are."""

    def counted(runner: Runner) -> CellCount:
        @contextmanager
        def opened(cell: EngineCell, **options: object) -> Iterator[object]:
            yield SimpleNamespace(engine=runner)

        monkeypatch.setattr(observations, "open_release", opened)
        return count(CELL)

    return counted


@pytest.mark.parametrize("ending", [Ending.TIMED_OUT, Ending.LOST])
def test_of_a_run_that_was_cut_off_nothing_is_counted(ending: Ending) -> None:
    with pytest.raises(SystemExit, match="where it stood"):
        whole(run(STEP, ending=ending))


@pytest.mark.parametrize("ending", [Ending.FINISHED, Ending.FAILED])
def test_a_run_that_came_to_an_end_of_its_own_counts(ending: Ending) -> None:
    told = run(STEP, ending=ending)
    assert whole(told) is told


def test_fields_are_told_by_boundary_and_name_and_what_is_kept_as_one() -> None:
    assert [name for name, _ in fields_of(run(STEP))] == FIELDS
    assert dict(fields_of(run(STEP)))[f"{KEPT} in the runner"] == {"a": 1, "b": 2}


def test_a_field_has_changed_if_a_value_that_both_runs_have_is_another() -> None:
    base: dict[str, list[object]] = {"same": [1, 2], "other": [1, 2], "sooner": [1, 2]}
    spoilt: dict[str, list[object]] = {"same": [1, 2], "other": [1, 3], "sooner": [1], "more": [1]}
    assert changed(base, spoilt) == {"other"}


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (FieldCount(observed=2, compared=7, shown=("seeds",)), "truth, 7"),
        (FieldCount(observed=2, compared=7, shown=()), "truth, 7, dead"),
        (FieldCount(observed=2, compared=0, shown=("seeds",)), "base"),
        (FieldCount(observed=2, compared=0, shown=()), "base, dead"),
        (FieldCount(observed=2, compared=0, shown=(), is_constant=True), "base, one value"),
        (FieldCount(observed=2, compared=0, shown=("seeds",), is_constant=True), "base"),
        (FieldCount(observed=0, compared=7, shown=()), "truth, 7"),  # by the name of a truth alone
    ],
)
def test_what_a_field_is_compared_with(field: FieldCount, text: str) -> None:
    cell = cell_of(StateMode.NONE, field)
    assert (entry(cell, "tokens"), entry(cell, "seeds")) == (text, "")


def test_all_scenarios_are_counted_and_what_no_wrong_tensor_changes_is_dead(
    counted: Callable[[Runner], CellCount],
) -> None:
    found = counted(Runner(untrue="abort_in_flight"))
    scenarios = len(list((observations.ROOT / "scenarios" / "vllm").glob("*.toml")))
    runs = scenarios - len(found.skipped)
    assert set(found.fields) == set(FIELDS) and found.skipped
    assert found.fields["inputs.tokens"] == FieldCount(
        observed=runs, compared=2 * runs, shown=("input_ids",), is_constant=True
    )
    assert found.fields["rows"] == FieldCount(observed=runs, compared=0, shown=(), is_constant=True)
    assert found.untrue == {"abort_in_flight": ["step 3: length of request A in row 0"]}


@pytest.mark.parametrize("late", ["abort_in_flight", "plant"])
def test_a_count_ends_where_a_run_does_not(
    counted: Callable[[Runner], CellCount], late: str
) -> None:
    with pytest.raises(SystemExit, match=str(Ending.TIMED_OUT)):
        counted(Runner(late=late))


def cell_of(mode: StateMode, field: FieldCount, older: str = "") -> CellCount:
    """A way to run a release that has one field. older: of which commit its count is"""
    return CellCount(
        release="1.0", runner=ModelRunner.V2, mode=mode, fields={"tokens": field},
        untrue={"s": ["step 1: tokens"]} if older else {}, skipped={}, older=older,
    )  # fmt: skip


def test_only_what_is_asked_for_is_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is counted again is older no more; the others stay, and the page says so."""
    out, field = tmp_path / "observations.json", FieldCount(observed=1, compared=1, shown=("x",))
    before = [cell_of(mode, field, "5cbacdc1") for mode in (StateMode.ALIGN, StateMode.NONE)]
    out.write_bytes(msgspec.json.encode(before))
    fresh = msgspec.structs.replace(field, compared=9)
    monkeypatch.setattr(observations, "count", lambda cell: cell_of(cell.mode, fresh))
    arguments = ["observations.py", str(out), "--release", "1.0", "--runner", "v2"]
    monkeypatch.setattr("sys.argv", [*arguments, "--mode", "none"])
    observations.main()
    after = {
        cell.mode: cell for cell in msgspec.json.decode(out.read_bytes(), type=list[CellCount])
    }
    assert (after["align"].older, after["none"].older) == ("5cbacdc1", "")
    text = out.with_suffix(".md").read_text()
    assert "| tokens | truth, 1 | truth, 9 |" in text
    assert "1.0 v2 align was counted by 5cbacdc1" in text and "none was counted" not in text
    assert "not true: 1." in " ".join(text.split())


def test_a_field_that_no_run_observes_any_more_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else says so: what is not observed is compared with nothing."""
    out, field = tmp_path / "observations.json", FieldCount(observed=1, compared=1, shown=())
    out.write_bytes(msgspec.json.encode([cell_of(StateMode.NONE, field)]))
    unseen = msgspec.structs.replace(field, observed=0)
    monkeypatch.setattr(observations, "count", lambda cell: cell_of(cell.mode, unseen))
    arguments = ["observations.py", str(out), "--release", "1.0", "--runner", "v2"]
    monkeypatch.setattr("sys.argv", [*arguments, "--mode", "none"])
    with pytest.raises(SystemExit, match=r"observes any more: tokens \(v2 none\)"):
        observations.main()


def test_the_committed_page_is_that_of_the_committed_counts() -> None:
    folder = observations.ROOT / "reports" / "vllm"
    data = (folder / "observations.json").read_bytes()
    cells = msgspec.json.decode(data, type=list[CellCount])
    assert page(cells) == (folder / "observations.md").read_text()
