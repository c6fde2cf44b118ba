"""The conformance kit: what is honest passes, and every lie is found."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from racegate.check.checker import Checker
from racegate.check.served import lines_of
from racegate.history.finding import FindingKind, Verdict
from racegate.history.trace import Misowned, Waited
from racegate.oracles.ordering import find_conflicts
from racegate.scenario.files import load
from racegate.scenario.spec import OwnScenario, Request
from racegate.targets.adapters.client import Adapter, AdapterRun
from racegate.targets.adapters.conformance import CheckOutcome, ConformanceCheck, conform
from racegate.targets.adapters.judge import AdapterJudge
from racegate.targets.adapters.wire import DropEdge, Offer, StaleValue, WrongRow, plant_text
from repository import ROOT
from scripted_engine import buffer, host, observation, op, record, scripted, use, wait

TOY = [sys.executable, str(ROOT / "docs" / "examples" / "toy_adapter.py")]
SERVED = [sys.executable, "-m", "racegate.check.served"]
CONDENSE = ROOT / "scenarios" / "finish_and_condense.toml"
SCENARIO = OwnScenario(
    name="one",
    title="one request",
    requests=(Request(name="A", arrive=0, prompt=(1, 2), max_tokens=3),),
)
Lines = Sequence[Mapping[str, Any]]


def outcomes(command: Sequence[str]) -> dict[str, ConformanceCheck]:
    with Adapter(command) as adapter:
        return {check.name: check for check in conform(adapter)}


def failed(checks: Mapping[str, ConformanceCheck]) -> dict[str, str]:
    return {n: c.detail for n, c in checks.items() if c.outcome is CheckOutcome.FAILED}


EVERYTHING = ("plain", "observations", "holds", "owners")


@pytest.mark.parametrize(
    "offers", [(), ("plain",), ("owners",), ("observations", "holds"), EVERYTHING], ids="+".join
)
def test_the_toy_conforms(offers: tuple[str, ...]) -> None:
    checks = outcomes([*TOY, *offers])
    assert failed(checks) == {}
    said = ", ".join(sorted(offers)) or "nothing but its history"
    assert checks["introduces itself"].detail.endswith(f", offers {said}")
    skipped = [n for n, c in checks.items() if c.outcome is CheckOutcome.SKIPPED]
    assert skipped == ([] if offers else ["wrong_row is found", "stale_value is found"])
    if "observations" in offers:
        swapped = "processed.count: {'A': 2, 'B': 4}, and {'A': 4, 'B': 2} without it"
        assert checks["wrong_row changes an observation"].detail == swapped


def test_the_engine_of_this_repository_conforms() -> None:
    checks = outcomes(SERVED)
    assert failed(checks) == {}
    assert {
        "drop_edge:valid-count-landed does harm under a landing",
        "wrong_row is found by its owner",
        "stale_value changes an observation",
        "realises a hold",
    } <= checks.keys()


PLANTED = {
    DropEdge(edge="count-landed"): (
        [FindingKind.CONFLICT, FindingKind.CONFLICT, FindingKind.OWNERSHIP, FindingKind.LOSS],
        "count-landed",
    ),
    WrongRow(): ([FindingKind.OWNERSHIP, FindingKind.LOSS], None),
    StaleValue(): ([FindingKind.OWNERSHIP, FindingKind.LOSS], None),
}


@pytest.mark.parametrize("plant", PLANTED, ids=plant_text)
def test_planted_races_of_the_toy(plant: DropEdge | WrongRow | StaleValue) -> None:
    kinds, edge = PLANTED[plant]
    with Adapter([*TOY, *EVERYTHING]) as adapter:
        judge = AdapterJudge(adapter, load(ROOT / "docs" / "examples" / "toy.toml"))
        assert judge.judge().verdict is Verdict.PROVED
        found = judge.judge(plant=plant)
    assert found.verdict is Verdict.DIVERGENT
    assert [finding.kind for finding in found.findings] == kinds
    assert found.findings[0].edge == edge


def test_a_race_of_the_toy_is_never_benign_without_holds() -> None:
    """It offers to be compared, and no landing can be tried."""
    with Adapter([*TOY, "plain", "observations"]) as adapter:
        judge = AdapterJudge(adapter, load(ROOT / "docs" / "examples" / "toy.toml"))
        found = judge.judge(plant=DropEdge(edge="count-landed"))
    assert (found.verdict, found.stats.conflicts, found.tried.number) == (Verdict.CONFLICT, 19, 0)


@pytest.mark.parametrize("fault", [None, "accepted-read-before-copy", "correction-wrong-epoch"])
def test_the_history_of_this_repository_is_the_trace(fault: str | None) -> None:
    """What comes over the wire has the clocks, conflicts and owners of the run itself."""
    from racegate.check.served import ServedEngine
    from racegate.faults.catalogue import find_fault
    from racegate.targets.adapters.reader import HistoryReader

    run = Checker(load(CONDENSE)).execute(fault=None if fault is None else find_fault(fault))
    reader = HistoryReader(ServedEngine().hello(), load(CONDENSE))
    for line in lines_of(run):
        reader.take(line)
    its, mine = run.trace, reader.trace()
    assert [_known(event, its.lanes) for event in its.events] == [
        _known(event, mine.lanes) for event in mine.events
    ]
    pairs = [(c.buffer, c.rows, c.first.name, c.second.name) for c in find_conflicts(its)]
    assert pairs == [(c.buffer, c.rows, c.first.name, c.second.name) for c in find_conflicts(mine)]
    assert len(reader.observations()) == len(run.observations)


def _known(event: Any, lanes: Sequence[str]) -> Any:
    """An event by names of lanes and without numbers of storages; a wait tells no step."""
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    if "lane" in fields:
        fields["lane"] = lanes[event.lane]
    if "clock" in fields:
        fields["clock"] = {lanes[n]: seq for n, seq in enumerate(event.clock) if seq}
    if isinstance(event, Waited):
        fields["step"] = None
    if "accesses" in fields or "access" in fields:
        fields.pop("access", None)
        fields["accesses"] = [(a.buffer, a.rows, a.is_write) for a in event.accesses]
    if isinstance(event, Misowned):
        fields["row"] = event.row
    return type(event).__name__, fields


# An honest engine, and what it may lie about.
COPY = op("d2h:x@1", use("x", write=True))
DROPPED: Lines = [
    buffer(),
    COPY,
    record(),
    wait(dropped=True),
    host("host:take@2", use("x")),
    observation(2, count=1),
]
HONEST: Lines = [
    buffer(),
    COPY,
    record(),
    wait(),
    host("host:take@2", use("x")),
    observation(2, count=1),
]
OTHER: Lines = [*HONEST[:-1], observation(2, count=3)]
PLANTS = [
    {"plant": "drop_edge", "edge": "landed"},
    {"plant": "wrong_row"},
    {"plant": "stale_value"},
]
LATE = "d2h:x@1 until host:take@2"
RUNS: dict[str, Lines] = {
    "": HONEST,
    "shorter": HONEST[:-1],
    "drop_edge": DROPPED,
    f"{LATE} & drop_edge": [*DROPPED[:-1], observation(2, count=3)],
    "wrong_row": OTHER,
    "stale_value": OTHER,
}
ANSWERS: dict[str, dict[str, Any]] = {
    "wrong_row": {"delivered": {"A": [1, 2, 9]}},
    "stale_value": {"delivered": {"A": [1, 2, 9]}},
    LATE: {"holds": [{"hold": LATE, "matched": 1, "realised": 0}]},
}
HELLO: dict[str, Any] = {
    "offers": ["plain", "observations", "holds"],
    "boundaries": ["sampled"],
    "plants": PLANTS,
}


def checked(
    folder: Path,
    *,
    runs: Mapping[str, Lines] | None = None,
    answers: Mapping[str, Mapping[str, Any]] | None = None,
    **hello: Any,
) -> dict[str, str]:
    """What fails of an honest engine that is changed so."""
    command = scripted(
        folder, RUNS | dict(runs or {}), answers=ANSWERS | dict(answers or {}), **HELLO | hello
    )
    with Adapter(command) as adapter:
        return failed({check.name: check for check in conform(adapter, scenario=SCENARIO)})


def test_an_honest_engine(tmp_path: Path) -> None:
    assert checked(tmp_path) == {}


REALISED = [{"hold": LATE, "matched": 1, "realised": 1}]
FORCED = "d2h:x@1 until forced"
LIES: dict[str, tuple[dict[str, Any], str, str]] = {
    "a hold past a wait": (
        {"answers": {LATE: {"holds": REALISED}}},
        "does not hold an operation past a wait for it",
        "the wait does not wait",
    ),
    "a history that was recorded once": (
        {"runs": {"shorter": HONEST}},
        "tells another history of another scenario",
        "the history is the same",
    ),
    "an answer that was recorded once": (
        {"answers": {"shorter": {"delivered": {"A": [1, 2, 3]}}}},
        "tells another history of another scenario",
        "3 tokens are delivered, and it ends after 1",
    ),
    "a plant of its own that does nothing": (
        {"plants": [*PLANTS, {"plant": "own", "name": "lost-wakeup"}]},
        "own:lost-wakeup is found",
        "PROVED: nothing found",
    ),
    "a hold that is not kept": (
        {"answers": {FORCED: {"holds": [{"hold": FORCED, "matched": 1, "realised": 0}]}}},
        "realises a hold",
        "was not realised",
    ),
    "a hold that changes the history": (
        {"runs": {FORCED: [*HONEST, COPY | {"name": "d2h:x@2"}]}},
        "realises a hold",
        "the history has other events",
    ),
    "a hold that changes what is observed": (
        {"runs": {FORCED: OTHER}},
        "realises a hold",
        "depends on the schedule",
    ),
    "holds of nothing that is waited for": (
        {"holdable": ["h2d:*"]},
        "realises a hold",
        "no operation that it can hold is waited for",
    ),
    "a boundary never seen": (
        {"boundaries": ["sampled", "inputs"]},
        "observes at every boundary that it introduces",
        "nothing was observed at: inputs",
    ),
    "a dead observation": (
        {"runs": {"wrong_row": HONEST}},
        "wrong_row changes an observation",
        "observe what depends on counts",
    ),
    "a plant that is not planted": (
        {"answers": {"stale_value": {}}},
        "stale_value is found",
        "PROVED: nothing found",
    ),
    "a drop that drops nothing": (
        {"runs": {"drop_edge": HONEST}},
        "drop_edge:landed is found",
        "not every wait of landed is marked as dropped",
    ),
    "a drop that lets nothing race": (
        {"runs": {"drop_edge": [buffer(), COPY, record(), wait(dropped=True), HONEST[-1]]}},
        "drop_edge:landed is found",
        "nothing found",
    ),
    "a conflict that does no harm": (
        {"runs": {f"{LATE} & drop_edge": DROPPED}},
        "drop_edge:landed does harm under a landing",
        "BENIGN",
    ),
    "a race without a plant": (
        {"runs": {"": [buffer(), COPY, host("host:take@2", use("x")), observation(2, count=1)]}},
        "nothing is found where nothing is planted",
        "no path of edges orders them",
    ),
    "a wait dropped without a plant": (
        {"runs": {"": [*HONEST, wait(dropped=True)]}},
        "nothing is found where nothing is planted",
        "only a planted fault drops one",
    ),
    "nothing that shows the order": (
        {"plants": PLANTS[1:]},
        "plants a missing order",
        "no plant drop_edge",
    ),
    "nothing that shows holds": (
        {"plants": PLANTS[1:]},
        "plants what holds shows",
        "no plant drop_edge",
    ),
    "nothing that shows tokens": (
        {"plants": PLANTS[:1]},
        "plants what plain shows",
        "no plant wrong_row or stale_value",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_every_lie_is_found(tmp_path: Path, lie: str) -> None:
    changes, name, detail = LIES[lie]
    found = checked(tmp_path, **changes)
    assert detail in found[name]


def test_owners_have_to_be_shown(tmp_path: Path) -> None:
    """wrong_row is seen by its tokens; owners that are offered have to see it as well."""
    found = checked(tmp_path, offers=[*HELLO["offers"], "owners"])
    assert list(found) == ["wrong_row is found by its owner"]


@pytest.mark.parametrize(
    ("name", "fails"),
    [
        ("os.urandom(8).hex()", ["tells the same history twice", "tells it in a new process too"]),
        ("os.getpid()", ["tells it in a new process too"]),
    ],
)
def test_a_history_that_is_not_the_same_twice(name: str, fails: list[str]) -> None:
    """A runner that does something else every time, or in every process."""
    program = f"""
import os, sys
sys.argv = [{TOY[1]!r}, "plain"]
sys.path.insert(0, {str(Path(TOY[1]).parent)!r})
import toy_runner
launch = toy_runner.Runner.launch
def unsteady(self, step):
    self.device.begin(f"{{{name}}}@{{step}}")
    self.device.touch("count", 0, False)
    launch(self, step)
toy_runner.Runner.launch = unsteady
exec(open({TOY[1]!r}).read())
"""
    found = failed(outcomes([sys.executable, "-c", program]))
    assert list(found) == fails
    assert all("seed what is random" in detail for detail in found.values())


def test_no_conflict_where_nothing_is_planted() -> None:
    """No false alarm, whatever the toy is asked to run, as far as it can."""
    with Adapter([*TOY, *EVERYTHING]) as adapter:
        for path in sorted((ROOT / "scenarios").glob("*.toml")):
            judged = AdapterJudge(adapter, load(path)).judge()
            assert judged.findings == ()
            assert judged.refused or judged.stats.ops


def test_offers_are_known() -> None:
    with Adapter([*TOY, *EVERYTHING]) as adapter:
        told = adapter.run(SCENARIO)
        assert set(adapter.hello.offers) == set(Offer) - {Offer.CLOCKS, Offer.SETTINGS}
    assert isinstance(told, AdapterRun) and told.owners_seen
