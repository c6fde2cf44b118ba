"""Real releases, where they are set up: `racegate sglang setup --release X` (about 5 GB)."""

from __future__ import annotations

from pathlib import Path

import pytest

from racegate.history.schedule import Hold
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Ending, Plan
from racegate.scenario.files import load_for
from racegate.targets.common.environment import Environment
from racegate.targets.common.judge import unmet_expectations
from racegate.targets.sglang.cell import SchedulerCell
from racegate.targets.sglang.engine import WithPlain, open_scheduler
from racegate.targets.sglang.environment import SGLANG
from racegate.targets.sglang.wire import ModelKind, Repair

SCENARIOS = Path(__file__).parents[3] / "scenarios" / "sglang"
SCENARIO = SCENARIOS / "prefix_behind_chunked_prefill.toml"
WRITE = "_index_put_impl_@_track_mamba_state_extend"
KEPT = "index@copy_from"


def installed(release: str) -> Environment:
    try:
        return SGLANG.environment_of(release)
    except BadInput as error:
        pytest.skip(str(error))


@pytest.mark.sglang
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("release", "without"),
    [
        ("0.5.12.post1", ()),
        ("0.5.13", (Repair.DONATED_SLOT, Repair.WAR_BARRIER)),
    ],
)
def test_a_state_is_kept_before_it_is_written(
    tmp_path: Path, release: str, without: tuple[Repair, ...]
) -> None:
    """sglang#24221: right when nothing is held, wrong when the copy comes first."""
    scenario, log = load_for("SGLang", SCENARIO), tmp_path / "sglang.log"
    cell = SchedulerCell(release=release, model=ModelKind.HYBRID, without=without)
    with open_scheduler(installed(release), cell, log=log) as engine:
        runs = WithPlain(engine)
        eager = runs.run(scenario, Plan())
        assert eager.ending is Ending.FINISHED, log.read_text()[-2000:]
        racing = [f for f in eager.findings if f.first.label.startswith(WRITE)]
        assert racing and all(f.second.label.startswith(KEPT) for f in racing)
        last = racing[0].pairs[-1][0]
        held = runs.run(scenario, Plan(holds=(Hold(op=last),), is_recording=False))
    assert eager.delivered == eager.plain
    assert unmet_expectations(cell, scenario, eager) == ()
    assert held.delivered["M"] != held.plain["M"]
    assert held.delivered["L"] == held.plain["L"]


@pytest.mark.sglang
@pytest.mark.timeout(900)
def test_the_repaired_release_is_silent(tmp_path: Path) -> None:
    scenario, log = load_for("SGLang", SCENARIO), tmp_path / "sglang.log"
    cell = SchedulerCell(release="0.5.13", model=ModelKind.HYBRID)
    with open_scheduler(installed("0.5.13"), cell, log=log) as engine:
        eager = WithPlain(engine).run(scenario, Plan())
    assert eager.ending is Ending.FINISHED, log.read_text()[-2000:]
    assert eager.delivered == eager.plain
    assert unmet_expectations(cell, scenario, eager) == ()
    assert [f for f in eager.findings if f.first.label.startswith(WRITE)] == []
