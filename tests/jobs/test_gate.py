"""The gate: what it takes, and that the number of workers does not matter."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from racegate.check.selfcheck import CANARIES, SelfCheck, everywhere
from racegate.history.witness import load_witnesses
from racegate.jobs.gate import GateJudge, GateResult, GateSpec, run_gate
from racegate.jobs.selection import SelectionError
from racegate.scenario.files import load_all, scenario_paths
from support import SCENARIOS

EXPRESSION = "cycle or correction-wrong-epoch or stop-token or wrong-row or double-remap or park"


@pytest.fixture(scope="module")
def whole() -> GateSpec:
    return GateSpec(
        scenarios=tuple(load_all(scenario_paths(SCENARIOS))),
        must_fail=tuple(load_witnesses(SCENARIOS / "witnesses")),
    )


def untimed(result: GateResult) -> Any:
    """A result without what differs from run to run."""
    value = msgspec.to_builtins(result)
    del value["stats"]["seconds"]
    for run in value["scenarios"]:
        del run["stats"]["seconds"]
        for name in ("seconds", "seconds_left"):
            del run["search"][name]
    return value


def test_the_result_is_the_same_for_any_number_of_workers(whole: GateSpec) -> None:
    given = whole.selected(EXPRESSION)
    assert len(given.scenarios) > 3 and len(given.must_fail) > 1
    results = [run_gate(given, look=GateJudge(budget=8), workers=n) for n in (1, 2)]
    assert untimed(results[0]) == untimed(results[1])
    assert [run.scenario for run in results[1].scenarios] == [s.name for _, s in given.scenarios]
    assert [entry.witness for entry in results[1].must_fail] == [
        str(path) for path, _ in given.must_fail
    ]
    assert results[1].selfcheck.canaries == len(CANARIES)


def test_a_selection_is_by_name_of_both(whole: GateSpec) -> None:
    given = whole.selected("stop-token")
    assert [scenario.name for _, scenario in given.scenarios] == ["stop-token"]
    assert all("stop-token" in path.name for path, _ in given.must_fail)
    with pytest.raises(SelectionError, match=r"near it: .*stop-token"):
        whole.selected("stap-token")


def test_a_canary_is_found_if_every_worker_has_found_it() -> None:
    sound = SelfCheck(canaries=3, canaries_found=3)
    lost = SelfCheck(canaries=3, canaries_found=2, problems=("canary a: not seen",))
    assert everywhere([sound, sound]) == sound
    assert everywhere([sound, lost, lost]) == lost
    assert not everywhere([sound, lost]).is_sound
