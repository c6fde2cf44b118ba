"""Verdicts on foreign engines: never more than the engine lets anybody know."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from racegate.cli.app import app
from racegate.history.finding import FindingKind, Verdict
from racegate.history.outcome import RunResult
from racegate.history.schedule import parse_schedule
from racegate.interpose.outcome import Plan
from racegate.scenario.expect import Expect
from racegate.scenario.settings import CacheMode, EngineSpec
from racegate.scenario.spec import Abort, OwnScenario, Request
from racegate.targets.adapters.client import Adapter
from racegate.targets.adapters.errors import AdapterError
from racegate.targets.adapters.judge import AdapterCommand, AdapterJudge
from racegate.targets.adapters.process import Limits
from racegate.targets.adapters.wire import DropEdge
from repository import ROOT
from scripted_engine import buffer, host, observation, op, record, scripted, use, wait

SCENARIO = OwnScenario(
    name="one",
    title="one request",
    requests=(Request(name="A", arrive=0, prompt=(1, 2), max_tokens=3),),
)
Lines = Sequence[Mapping[str, Any]]

COPY = op("d2h:x@1", use("x", write=True))
ORDERED: Lines = [buffer(), COPY, record(), wait(), host("host:take@2", use("x"))]
RACY: Lines = [buffer(), COPY, record(), host("host:take@2", use("x", [1]))]
TWICE: Lines = [*RACY, host("host:take@3", use("x", [1]))]
SEEN = {"boundaries": ["sampled"]}
EVERYTHING = {"offers": ["plain", "observations", "holds"], **SEEN}


def judged(
    folder: Path,
    runs: Mapping[str, Lines],
    *,
    scenario: OwnScenario = SCENARIO,
    limits: Limits | None = None,
    **script: Any,
) -> RunResult:
    with Adapter(scripted(folder, runs, **script), limits=limits) as adapter:
        return AdapterJudge(adapter, scenario).judge()


def landings(result: RunResult) -> tuple[int, int]:
    """How many were run, of how many."""
    return result.tried.number, result.tried.known


def kinds(result: RunResult) -> list[FindingKind]:
    return [finding.kind for finding in result.findings]


def test_proved_needs_plain_decoding(tmp_path: Path) -> None:
    alone = judged(tmp_path, {"": ORDERED})
    assert alone.verdict is Verdict.INCONCLUSIVE
    assert any("no plain decoding" in reason for reason in alone.unmet)
    proved = judged(tmp_path, {"": ORDERED}, offers=["plain"])
    assert proved.verdict is Verdict.PROVED
    assert [reason.partition(":")[0] for reason in proved.not_seen] == [
        "what is true inside a step",
        "whether a missing order does harm",
        "whose value a row has",
    ]


def test_settings_that_a_runner_does_not_obey_are_named(tmp_path: Path) -> None:
    engine = EngineSpec(depth=3, cache_mode=CacheMode.ALIGN)
    scenario = msgspec.structs.replace(SCENARIO, engine=engine)
    named = "what the script sets of racegate's own engine: engine.depth, engine.cache_mode"
    ignored = judged(tmp_path, {"": ORDERED}, scenario=scenario, offers=["plain"])
    assert [reason for reason in ignored.not_seen if reason.startswith(named)]
    obeyed = judged(tmp_path, {"": ORDERED}, scenario=scenario, offers=["settings", "plain"])
    assert obeyed.config["engine"]["offers"] == ["plain", "settings"]
    unset = judged(tmp_path, {"": ORDERED}, offers=["plain"])
    for judgement in (obeyed, unset):
        assert not [reason for reason in judgement.not_seen if "own engine" in reason]


def test_without_holds_a_conflict_is_a_conflict(tmp_path: Path) -> None:
    found = judged(tmp_path, {"": RACY}, offers=["plain"])
    assert found.verdict is Verdict.CONFLICT
    (finding,) = found.findings
    assert finding.signature == "conflict/x/d2h:x/host:take"
    assert finding.edge == "landed"
    assert "Without it a stale x is read" in finding.message
    assert any("cannot hold operations back" in reason for reason in found.not_seen)


def test_every_landing_without_effect_is_benign(tmp_path: Path) -> None:
    lines = [*TWICE, observation(2, count=1)]
    found = judged(tmp_path, {"": lines}, **EVERYTHING)
    assert found.text == "BENIGN in each of 2 combinations of landings"
    assert landings(found) == (2, 2)
    assert any("copies that land in parts" in reason for reason in found.not_seen)
    assert kinds(found) == [FindingKind.CONFLICT]


@pytest.mark.parametrize(
    ("offers", "verdict"),
    [(["plain", "holds"], Verdict.CONFLICT), (["observations", "holds"], Verdict.INCONCLUSIVE)],
)
def test_benign_needs_observations_and_plain_decoding(
    tmp_path: Path, offers: list[str], verdict: Verdict
) -> None:
    """Without observations nobody can compare; without plain decoding something is not met."""
    lines = [*TWICE, observation(2, count=1)] if "observations" in offers else TWICE
    boundaries = ["sampled"] if "observations" in offers else []
    found = judged(tmp_path, {"": lines}, offers=offers, boundaries=boundaries)
    assert found.verdict is verdict
    assert landings(found) == (2, 2)


def test_a_runner_that_offers_no_holds_is_never_benign(tmp_path: Path) -> None:
    """With all else that it could offer: no landing was tried."""
    lines = [*TWICE, observation(2, count=1)]
    found = judged(tmp_path, {"": lines}, offers=["plain", "observations", "owners"], **SEEN)
    assert (found.verdict, found.unmet) == (Verdict.CONFLICT, ())
    assert (landings(found), found.tried.number) == ((0, 0), 0)


INSIDE = [*RACY, host("host:take@3", use("x", [1])), host("host:take@3", use("x", [1], write=True))]
NOT_ALL: dict[str, tuple[dict[str, Lines], dict[str, Any], str]] = {
    "cannot be held": ({"": TWICE}, {"holdable": ["h2d:*"]}, "the engine cannot hold d2h:x@1"),
    "not realised": (
        {"": TWICE},
        {
            "answers": {
                "d2h:x@1 until host:take@3": {
                    "holds": [{"hold": "d2h:x@1 until host:take@3", "matched": 1, "realised": 0}]
                }
            }
        },
        "hold 'd2h:x@1 until host:take@3' was not realised",
    ),
    "refused": (
        {"": TWICE},
        {"answers": {"d2h:x@1 until host:take@3": {"is": "refused", "reason": "no"}}},
        "d2h:x@1 until host:take@3: no",
    ),
    "more conflicts": (
        {"": TWICE, "d2h:x@1 until host:take@3": [*TWICE, host("host:new@4", use("x"))]},
        {},
        "brings conflicts of its own",
    ),
    "inside an action": ({"": INSIDE}, {}, "d2h:x@1 may land inside host:take@3"),
    "stopped": (
        {"": TWICE},
        {"answers": {"d2h:x@1 until host:take@3": {"is": "hang"}}, "limits": Limits(timeout_s=5)},
        "d2h:x@1 until host:take@3: the engine has not answered within 5 s",
    ),
    "several lanes": (
        {"": [*TWICE, op("kernel:k@3", use("x"), lane="compute")]},
        {},
        "d2h:x@1 races several lanes",
    ),
}


@pytest.mark.parametrize("case", NOT_ALL)
def test_without_every_landing_it_is_not_benign(tmp_path: Path, case: str) -> None:
    runs, script, reason = NOT_ALL[case]
    found = judged(tmp_path, runs, **EVERYTHING | script)
    assert found.verdict is Verdict.CONFLICT
    assert any(reason in said for said in found.not_seen), found.not_seen


def test_too_many_landings(tmp_path: Path) -> None:
    lines = [buffer(), COPY, *(host(f"host:take@{n}", use("x")) for n in range(2, 9))]
    with Adapter(scripted(tmp_path, {"": lines}, **EVERYTHING)) as adapter:
        found = AdapterJudge(adapter, SCENARIO, landings_max=3).judge()
    assert found.verdict is Verdict.CONFLICT
    assert landings(found) == (3, 7)
    assert "3 of 7 landings were tried" in found.not_seen


HOLD = "d2h:x@1 until host:take@2"


def test_a_landing_that_changes_an_observation(tmp_path: Path) -> None:
    eager, held = [*RACY, observation(2, count=1)], [*RACY, observation(2, count=4)]
    found = judged(tmp_path, {"": eager, HOLD: held}, **EVERYTHING)
    assert found.verdict is Verdict.DIVERGENT
    assert found.schedule == (HOLD,)
    conflict, divergence = found.findings
    assert divergence.signature == "divergence/sampled.count"
    assert (divergence.step, divergence.expected, divergence.actual) == (2, 1, 4)
    assert divergence.replay == f'racegate adapter run --hold "{HOLD}"'
    assert conflict.kind is FindingKind.CONFLICT


@pytest.mark.parametrize(
    ("held", "field"),
    [
        ([*RACY], "observations"),
        ([*RACY, observation(3, count=1)], "sampled"),
        ([*RACY, observation(2, other=1)], "sampled"),
    ],
)
def test_observations_that_are_others(tmp_path: Path, held: Lines, field: str) -> None:
    found = judged(tmp_path, {"": [*RACY, observation(2, count=1)], HOLD: held}, **EVERYTHING)
    assert found.findings[-1].signature == f"divergence/{field}"


def test_a_landing_that_changes_tokens(tmp_path: Path) -> None:
    """Without plain decoding nobody knows which are right; that they differ is wrong enough."""
    answers = {HOLD: {"delivered": {"A": [1, 2, 9]}}}
    found = judged(tmp_path, {"": RACY}, answers=answers, offers=["holds"])
    assert found.verdict is Verdict.DIVERGENT
    assert found.findings[-1].signature == "divergence/delivered"
    plain = judged(tmp_path, {"": RACY}, answers=answers, offers=["holds", "plain"])
    assert plain.findings[-1].signature == "loss/delivered"


def test_losses_need_no_conflict(tmp_path: Path) -> None:
    answers = {"": {"delivered": {"A": [1, 2]}}}
    found = judged(tmp_path, {"": ORDERED}, answers=answers, offers=["plain"])
    assert (found.verdict, kinds(found)) == (Verdict.DIVERGENT, [FindingKind.LOSS])


# What is told of the end of a run of one request that wants three tokens; and the finding.
ENDS: dict[str, tuple[dict[str, Any], str]] = {
    "aborted by itself": ({"delivered": [1], "finished": "abort"}, "the engine aborted it"),
    "too early": ({"delivered": [1, 2], "finished": "max_tokens"}, "after 2 of 3 tokens"),
    "stopped too early": ({"delivered": [1, 2], "finished": "stop"}, "after 2 of 3 tokens"),
    "for another reason": ({"delivered": [1, 2, 3], "finished": "stop"}, "finished by stop"),
    "too late": ({"delivered": [1, 2, 3, 4], "finished": "max_tokens"}, "it ends after 3"),
    "no token": ({"delivered": [1, -1, 3], "finished": "max_tokens"}, "-1, which is no token"),
}


@pytest.mark.parametrize("offers", [[], ["plain"]])
@pytest.mark.parametrize("end", ENDS)
def test_a_request_ends_as_the_scenario_lets_it(
    tmp_path: Path, end: str, offers: list[str]
) -> None:
    """With plain decoding it may be seen as a loss already."""
    told, said = ENDS[end]
    answers = {"": {name: {"A": value} for name, value in told.items()}}
    found = judged(tmp_path, {"": ORDERED}, answers=answers, offers=offers)
    assert (found.verdict, kinds(found)) == (Verdict.DIVERGENT, [FindingKind.LOSS])
    is_loss = offers and found.findings[0].field == "delivered"
    assert said in found.findings[0].message or is_loss


def test_an_end_that_the_scenario_asks_for(tmp_path: Path) -> None:
    aborting = OwnScenario(
        name="a", title="a", requests=SCENARIO.requests, events=(Abort(step=1, request="A"),)
    )
    stopping = msgspec.structs.replace(
        SCENARIO, requests=(msgspec.structs.replace(SCENARIO.requests[0], stop_token=2),)
    )
    for scenario, why, count in ((aborting, "abort", 1), (stopping, "stop", 2)):
        answers = {"": {"delivered": {"A": [1, 2][:count]}, "finished": {"A": why}}}
        script = {"answers": answers, "events": ["abort"]}
        found = judged(tmp_path, {"": ORDERED}, scenario=scenario, **script)
        assert (found.verdict, found.findings) == (Verdict.INCONCLUSIVE, ())


ABSURD: dict[str, tuple[dict[str, Any], str]] = {
    "a negative counter": ({"counters": {"gaps": -1}}, "counter 'gaps' is -1"),
    "an absurd counter": ({"counters": {"gaps": 10**12}}, "counter 'gaps' is 1000000000000"),
    "no steps": ({"steps": 0}, "`steps` is 0"),
    "fewer steps than happened": ({"steps": 1}, "the history names step 2"),
    "more steps than may be": ({"steps": 10**6}, "the scenario allows 200"),
}


@pytest.mark.parametrize("what", ABSURD)
def test_an_answer_that_cannot_be_true(tmp_path: Path, what: str) -> None:
    told, said = ABSURD[what]
    with pytest.raises(AdapterError, match=said):
        judged(tmp_path, {"": ORDERED}, answers={"": told}, offers=["plain"])


def test_a_gate_in_which_most_is_refused_is_no_pass(tmp_path: Path) -> None:
    toy = ROOT / "docs" / "examples" / "toy.toml"
    scripts = {"toy": toy.read_text(encoding="utf-8")}
    ending = scripts["toy"].replace("max_tokens = 16", "max_tokens = 16\nstop_after = 3")
    scripts |= {f"ends{n}": ending.replace('"toy"', f'"ends{n}"') for n in range(3)}
    for name, text in scripts.items():
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    engine = [sys.executable, str(toy.with_name("toy_adapter.py")), "plain"]
    command = ["adapter", "gate", "--scenarios", str(tmp_path), "--json", "-", "--", *engine]
    result = CliRunner().invoke(app, command)
    gate = json.loads(result.stdout)
    verdicts = [one["verdict"] for one in gate["results"]]
    assert (verdicts.count("PROVED"), gate["verdict"], result.exit_code) == (1, "INCONCLUSIVE", 4)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk at /dev/full")
def test_what_a_gate_found_is_seen_though_the_disk_is_full() -> None:
    toy = ROOT / "docs" / "examples" / "toy_adapter.py"
    command = ["adapter", "gate", "--scenarios", str(toy.parent), "--junit", "/dev/full", "--"]
    result = CliRunner().invoke(app, [*command, sys.executable, str(toy), "plain"])
    assert "PROVED: 1 scenario" in result.stdout
    assert result.exit_code == 3


def test_owners(tmp_path: Path) -> None:
    """A value that was waited for and belongs to another request."""
    owner = {"is": "owner", "name": "host:take@2", "buffer": "x", "row": 1, "meant": ["A", 1]}
    ordered = [*ORDERED[:-1], host("host:take@2", use("x", [1]))]
    lines = [*ordered, {**owner, "found": ["B", 1]}]
    found = judged(tmp_path, {"": lines}, offers=["plain", "owners"])
    assert (found.verdict, kinds(found)) == (Verdict.DIVERGENT, [FindingKind.OWNERSHIP])
    assert "for request A, step 1 and finds the value of request B" in (found.findings[0].message)
    right = judged(
        tmp_path, {"": [*ordered, {**owner, "found": ["A", 1]}]}, offers=["plain", "owners"]
    )
    assert right.verdict is Verdict.PROVED


def test_owners_of_blocks(tmp_path: Path) -> None:
    """A store that comes behind its block's next owner, in order, and that nobody reads."""
    store = op("d2h:store@2", use("x", [1]), use("host", [0], write=True))
    page = {"is": "owner", "name": "d2h:store@2", "buffer": "x", "row": 1, "meant": ["A", 1]}
    lines = [*ORDERED, buffer("host"), store, {**page, "found": ["B", 1]}]
    found = judged(tmp_path, {"": lines}, offers=["plain", "owners"])
    assert kinds(found) == [FindingKind.OWNERSHIP]
    assert found.findings[0].signature == "ownership/x/d2h:store"


VACUOUS: dict[str, tuple[Lines, dict[str, Any], str]] = {
    "one lane": ([buffer(), COPY], {}, "no memory is touched by two lanes"),
    "no tokens": (
        ORDERED,
        {"answers": {"": {"delivered": {"A": []}, "finished": {"A": "unfinished"}}}},
        "no token was delivered",
    ),
    "no end": (
        ORDERED,
        {"answers": {"": {"finished": {"A": "unfinished"}}}},
        "request A did not finish",
    ),
    "a query": (
        [
            *ORDERED,
            COPY | {"name": "d2h:x@2"},
            record(),
            {"is": "query", "name": "h", "event": "e"},
        ],
        {},
        "asks whether something is complete",
    ),
}


@pytest.mark.parametrize("case", VACUOUS)
def test_what_shows_nothing_is_no_pass(tmp_path: Path, case: str) -> None:
    lines, script, reason = VACUOUS[case]
    found = judged(tmp_path, {"": lines}, offers=["observations"], **SEEN, **script)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert any(reason in said for said in found.unmet), found.unmet


def test_what_a_scenario_expects(tmp_path: Path) -> None:
    expecting = OwnScenario(
        name="e", title="e", requests=SCENARIO.requests, expect=Expect(condense_moves=1)
    )
    script = {"offers": ["plain"]}
    lacking = judged(tmp_path, {"": ORDERED}, scenario=expecting, **script)
    assert lacking.verdict is Verdict.INCONCLUSIVE
    assert lacking.unmet == ("condense_moves: 0, the scenario expects at least 1",)
    answers = {"": {"counters": {"condense_moves": 1}}}
    met = judged(tmp_path, {"": ORDERED}, scenario=expecting, answers=answers, **script)
    assert met.verdict is Verdict.PROVED


def test_events_that_it_cannot_make_happen(tmp_path: Path) -> None:
    aborting = OwnScenario(
        name="a", title="a", requests=SCENARIO.requests, events=(Abort(step=1, request="A"),)
    )
    found = judged(tmp_path, {"": ORDERED}, scenario=aborting, offers=["plain"])
    assert found.refused == "it cannot make happen: abort"
    assert found.verdict is Verdict.INCONCLUSIVE
    able = judged(tmp_path, {"": ORDERED}, scenario=aborting, offers=["plain"], events=["abort"])
    assert (able.refused, able.verdict) == ("", Verdict.PROVED)


def test_told_clocks_are_judged(tmp_path: Path) -> None:
    def lines(known: int) -> Lines:
        return [
            buffer(),
            COPY | {"clock": {}},
            host("host:take@2", use("x"), clock={"copy": known}),
        ]

    script = {"offers": ["plain", "clocks"]}
    assert judged(tmp_path, {"": lines(1)}, **script).verdict is Verdict.PROVED
    assert judged(tmp_path, {"": lines(0)}, **script).verdict is Verdict.CONFLICT


def test_under_given_holds(tmp_path: Path) -> None:
    runs = {"": [*RACY, observation(2, count=1)], HOLD: [*RACY, observation(2, count=4)]}
    runs |= {f"{HOLD} & drop_edge": runs[""], "drop_edge": runs[""]}
    command = AdapterCommand(scenario="s.toml", command=("python", "e.py"))
    with Adapter(scripted(tmp_path, runs, **EVERYTHING)) as adapter:
        judge = AdapterJudge(adapter, SCENARIO, command=command)
        schedule = parse_schedule([HOLD])
        held = judge.under(schedule)
        planted = judge.under(schedule, plant=DropEdge(edge="landed"))
    assert held.verdict is Verdict.DIVERGENT
    assert held.holds[0].realised == 1
    assert planted.verdict is Verdict.CONFLICT
    assert planted.findings[0].replay == (
        f'racegate adapter run s.toml --plant drop_edge:landed --hold "{HOLD}" -- python e.py'
    )


def test_a_change_has_to_come_from_the_landing(tmp_path: Path) -> None:
    """Eager runs that differ among themselves say nothing about a schedule."""
    eager, held = [*RACY, observation(2, count=1)], [*RACY, observation(2, count=4)]
    command = scripted(tmp_path, {"": eager, HOLD: held, "again": held}, **EVERYTHING)
    with (
        Adapter([*command, "unsteady"]) as adapter,
        pytest.raises(AdapterError, match="two eager runs of one differ"),
    ):
        AdapterJudge(adapter, SCENARIO).judge()


def test_of_a_landing_that_did_no_harm_nothing_large_is_kept(tmp_path: Path) -> None:
    """Unless somebody wants its history: there may be thousands of them."""
    holds = parse_schedule(["d2h:x@1 until host:take@3"]).holds
    with Adapter(scripted(tmp_path, {"": [*TWICE, observation(2, count=1)]}, **EVERYTHING)) as one:
        target = AdapterJudge(one, SCENARIO)._target(None)
        whole = target.run(Plan(holds=holds))
        tried = target.run(Plan(holds=holds, is_recording=False))
    assert whole.conflicts and whole.told is not None
    assert (tried.conflicts, tried.told, tried.ending) == ((), None, whole.ending)
