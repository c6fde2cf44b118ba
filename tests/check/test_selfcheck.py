"""The gate and campaigns check themselves: a broken oracle or a run that is not the same twice ends
them with exit code 3, and a run that exercised nothing is no pass.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

import racegate.jobs.gate
from racegate.check import subject
from racegate.check.checker import Checker
from racegate.check.findings import digest_of
from racegate.check.repro.search import search
from racegate.check.selfcheck import (
    CANARIES,
    SelfCheck,
    TwiceRun,
    boundary_digests,
    canary_scenario,
    chosen_twice,
    difference_of,
    is_run_twice,
    plant_canaries,
)
from racegate.cli.app import app
from racegate.cli.fuzz import exit_code_of
from racegate.device.virtual.compiled import COMPILED_VARIABLE, is_refused
from racegate.engine.rows.parts import RowParts
from racegate.explore.generate import generate, seeded
from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault, FaultKind, the_parts
from racegate.history.finding import FindingKind, Verdict
from racegate.history.outcome import RunResult
from racegate.jobs.campaign import Campaign
from racegate.jobs.fuzz import Bounds, fuzz
from racegate.jobs.gate import GateResult, GateSpec, run_gate
from racegate.jobs.generated import CampaignSpec, look_at
from racegate.jobs.stores.folder import STATE_FILE
from racegate.jobs.stores.records import CampaignState
from racegate.scenario.spec import Abort, Gap, OwnScenario, Request
from racegate_kernels.backend import EAGER
from racegate_kernels.numerics import Array
from support import SCENARIOS, checker, scenario

FINISH = "finish-and-condense"

# What each oracle says when it is broken so that it never says anything.
ORACLES: dict[str, Callable[..., Any]] = {
    "racegate.oracles.recall.find_conflicts": lambda *_: [],
    "racegate.check.judge.find_misowned": lambda *_: [],
    "racegate.oracles.recall.find_divergence": lambda *_, **__: None,
    "racegate.oracles.recall.find_violations": lambda *_: [],
    "racegate.oracles.recall.find_wrong_pages": lambda *_: [],
    "racegate.check.judge.find_losses": lambda *_: [],
}


def look(subject: Checker, fault: Fault | None, **_: Any) -> RunResult:
    return search(subject, fault=fault)


def small_gate(*names: str, fault: str | None = None) -> GateResult:
    scenarios = tuple((SCENARIOS / f"{name}.toml", scenario(name)) for name in names)
    return run_gate(GateSpec(scenarios=scenarios), look=look, fault=fault)


class TestCanaries:
    def test_a_sound_harness_finds_them_all(self) -> None:
        for sees in (look, lambda subject, fault: subject.run(fault=fault)):
            check = plant_canaries(sees)
            assert check == SelfCheck(canaries=len(CANARIES), canaries_found=len(CANARIES))
            assert check.is_sound

    def test_between_them_every_oracle_has_something_to_see(self) -> None:
        shown = {kind for canary in CANARIES for kind in canary.shows}
        stops = {FindingKind.DEADLOCK, FindingKind.CRASH, FindingKind.FOOTPRINT, FindingKind.CHANGE}
        of_ranks = {FindingKind.MISMATCH, FindingKind.ORDER}
        assert shown == set(FindingKind) - stops - of_ranks

    def test_the_first_is_seen_by_the_ordering_oracle_alone(self) -> None:
        subject = Checker(canary_scenario(CANARIES[0].cache_mode))
        result = subject.run(fault=find_fault(CANARIES[0].fault))
        assert {finding.kind for finding in result.findings} == {FindingKind.CONFLICT}

    def test_without_its_fault_a_canary_is_clean(self) -> None:
        for mode in {canary.cache_mode for canary in CANARIES}:
            assert Checker(canary_scenario(mode)).run().findings == ()

    @pytest.mark.parametrize("oracle", ORACLES)
    def test_a_broken_oracle_is_exit_code_3(
        self, oracle: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(oracle, ORACLES[oracle])
        (tmp_path / "s.toml").write_text((SCENARIOS / "finish_and_condense.toml").read_text())
        result = CliRunner().invoke(app, ["gate", "--scenarios", str(tmp_path), "--json", "-"])
        assert result.exit_code == 3
        gate = json.loads(result.stdout)
        assert gate["verdict"] == "BROKEN_HARNESS"
        assert gate["selfcheck"]["canaries_found"] < gate["selfcheck"]["canaries"]
        assert gate["selfcheck"]["problems"]

    def test_it_outweighs_a_finding(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fault = "correction-partial-fields"
        assert small_gate("steady-mixed-accepts", fault=fault).exit_code == 1
        oracle = "racegate.oracles.recall.find_conflicts"
        monkeypatch.setattr(oracle, ORACLES[oracle])
        assert small_gate("steady-mixed-accepts", fault=fault).exit_code == 3

    def test_a_look_that_does_not_look_is_noticed(self) -> None:
        def fault_free(subject: Checker, fault: Fault | None, **_: Any) -> RunResult:
            return subject.run()

        given = GateSpec(scenarios=((Path("s.toml"), scenario(FINISH)),))
        result = run_gate(given, look=fault_free)
        assert result.exit_code == 3
        assert result.selfcheck.canaries_found == 0


def drifting() -> Fault:
    """An engine part that remembers: no two runs of it are the same."""
    calls: list[int] = []

    def backup_index(computed: int, tokens: int, *, drafts_in_batch: int, known_len: int) -> int:
        calls.append(1)
        return computed + len(calls)

    return Fault(
        name="drifting",
        number=0,
        kind=FaultKind.LOGIC,
        origin="test",
        summary="",
        expect="",
        scenarios=(),
        parts=the_parts(rows=RowParts(backup_index=backup_index)),
    )


class TestRunsMadeTwice:
    def test_a_run_that_is_not_the_same_twice_is_exit_code_3(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(racegate.jobs.gate, "find_fault", lambda name: drifting())
        result = small_gate("chunked-prefill-backup-token", fault="drifting")
        assert result.verdict is Verdict.BROKEN_HARNESS
        assert result.exit_code == 3
        assert (result.selfcheck.double_runs, result.selfcheck.mismatches) == (1, 1)
        (problem,) = result.selfcheck.problems
        for said in ("chunked-prefill-backup-token", "boundary prepared", "backup_token", "step 1"):
            assert said in problem

    def test_the_same_run_is_the_same(self) -> None:
        result = small_gate(FINISH)
        assert result.exit_code == 0
        assert (result.selfcheck.double_runs, result.selfcheck.mismatches) == (1, 0)

    def test_the_second_run_is_in_python(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(COMPILED_VARIABLE, raising=False)
        assert TwiceRun(checker(FINISH), None).again() == SelfCheck(double_runs=1, both_cores=1)
        monkeypatch.setenv(COMPILED_VARIABLE, "0")
        assert TwiceRun(checker(FINISH), None).again() == SelfCheck(double_runs=1)

    def test_a_core_that_is_not_its_python_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What differs only in C is no run that does not repeat itself."""
        monkeypatch.delenv(COMPILED_VARIABLE, raising=False)

        def one_off(x: Array, weight: Array, bias: Array | None = None) -> Array:
            return EAGER.linear(x, weight, bias) + np.uint32(1)

        wrong = dataclasses.replace(EAGER, linear=one_off)
        monkeypatch.setattr(subject, "host_backend", lambda: EAGER if is_refused() else wrong)
        check = TwiceRun(checker(FINISH), None).again()
        assert (check.double_runs, check.mismatches, check.both_cores) == (1, 1, 1)
        assert not check.is_sound
        (problem,) = check.problems
        assert f"{FINISH}: a run in C and one in Python (`racegate --no-core`" in problem

    def test_every_field_of_every_boundary_is_hashed(self) -> None:
        run = checker(FINISH).execute()
        digests = boundary_digests(run.observations)
        assert len(digests) == sum(len(o.values) for o in run.observations)
        for number in range(0, len(run.observations), 7):
            changed = list(run.observations)
            field = next(iter(changed[number].values))
            values = {**changed[number].values, field: "something else"}
            changed[number] = msgspec.structs.replace(changed[number], values=values)
            other = dataclasses.replace(run, observations=tuple(changed))
            place = changed[number]
            assert difference_of(run, other) == (
                f"step {place.step}, boundary {place.boundary}, field {field}"
            )
            assert digest_of(run, ()) != digest_of(other, ())

    def test_another_order_of_operations_is_a_difference_too(self) -> None:
        run = checker(FINISH).execute()
        trace = msgspec.structs.replace(run.trace, events=run.trace.events[:-1])
        difference = difference_of(run, dataclasses.replace(run, trace=trace))
        assert difference is not None and "operations issued" in difference

    def test_a_run_that_ends_earlier_is_a_difference(self) -> None:
        run = checker(FINISH).execute()
        shorter = dataclasses.replace(run, observations=run.observations[:-1])
        assert difference_of(run, shorter) is not None
        assert difference_of(run, run) is None

    @pytest.mark.parametrize("place", [0, 3])
    def test_the_place_that_is_named_is_of_the_first_run(self, place: int) -> None:
        run = checker(FINISH).execute()
        lacking = dataclasses.replace(
            run, observations=run.observations[:place] + run.observations[place + 1 :]
        )
        for first, second in ((run, lacking), (lacking, run)):
            there = first.observations[place]
            assert difference_of(first, second) == (
                f"step {there.step}, boundary {there.boundary}, field {min(there.values)}"
            )

    def test_the_share_is_five_percent_and_at_least_one(self) -> None:
        names = [f"s{i}" for i in range(100)]
        assert len(chosen_twice(names, seed=0)) == 5
        assert [len(chosen_twice(names[:few], seed=0)) for few in (1, 20, 21)] == [1, 1, 2]
        assert chosen_twice(names, seed=0) == chosen_twice(names[::-1], seed=0)
        assert chosen_twice(names, seed=0) != chosen_twice(names, seed=1)
        drawn = sum(is_run_twice(7, index) for index in range(2000))
        assert 60 <= drawn <= 140
        assert is_run_twice(7, 0)


class TestExercisedNothing:
    def idle(self) -> OwnScenario:
        """The only request gives up before it starts."""
        return OwnScenario(
            name="idle",
            title="nothing happens",
            requests=(Request(name="A", arrive=1, prompt=(1, 2), max_tokens=2),),
            events=(Gap(step=1, request="A"), Abort(step=1, request="A")),
        )

    def test_a_run_without_a_boundary_is_inconclusive(self) -> None:
        result = Checker(self.idle()).run()
        assert result.stats.boundaries == 0
        assert result.verdict is Verdict.INCONCLUSIVE
        assert "boundaries: 0" in result.unmet[0]

    def test_a_gate_without_overlap_is_inconclusive(self) -> None:
        def serial(subject: Checker, fault: Fault | None, **_: Any) -> RunResult:
            seen = look(subject, fault)
            return msgspec.structs.replace(
                seen, stats=msgspec.structs.replace(seen.stats, overlapped_ops=0)
            )

        given = GateSpec(scenarios=((Path("s.toml"), scenario(FINISH)),))
        result = run_gate(given, look=serial)
        assert result.scenarios[0].verdict is Verdict.PROVED
        assert result.verdict is Verdict.INCONCLUSIVE
        assert result.exit_code == 4
        assert "overlapped_ops" in result.unmet[0]


class TestCampaigns:
    def fuzz(self, folder: Path, *arguments: str) -> Any:
        return CliRunner().invoke(
            app, ["fuzz", "--out", str(folder), "--scenarios", "4", "--json", "-", *arguments]
        )

    def small_campaign(self, folder: Path) -> tuple[Campaign, CampaignState]:
        campaign = Campaign(CampaignSpec(seed=0), folder)
        return campaign, fuzz(campaign, Bounds(scenarios=2), workers=1)

    def test_each_worker_looks_at_canaries_before_and_behind(self, tmp_path: Path) -> None:
        result = self.fuzz(tmp_path, "--workers", "2")
        assert result.exit_code == 0, result.output
        shown = json.loads(result.stdout)
        assert shown["unchecked"] == []
        assert shown["selfcheck"]["canaries_found"] == 4 * len(CANARIES)
        assert shown["selfcheck"]["double_runs"] >= 1
        assert shown["campaign"]["selfcheck"] == shown["selfcheck"]

    def test_bounded_by_time_the_last_canaries_are_still_looked_at(self, tmp_path: Path) -> None:
        arguments = ["fuzz", "--out", str(tmp_path), "--seconds", "2", "--json", "-"]
        shown = json.loads(CliRunner().invoke(app, arguments).stdout)
        assert shown["unchecked"] == []
        assert shown["selfcheck"]["canaries_found"] == 2 * len(CANARIES)

    def test_a_broken_oracle_ends_it_with_exit_code_3(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        oracle = "racegate.oracles.recall.find_divergence"
        monkeypatch.setattr(oracle, ORACLES[oracle])
        result = self.fuzz(tmp_path, "--fault", "correction-partial-fields")
        assert result.exit_code == 3
        shown = json.loads(result.stdout)
        assert "divergence" in shown["selfcheck"]["problems"][0]

    def test_a_worker_without_its_last_canaries_is_no_pass(self, tmp_path: Path) -> None:
        campaign, state = self.small_campaign(tmp_path)
        assert exit_code_of(campaign, state) == 0
        campaign.unchecked = {0}
        assert exit_code_of(campaign, state) == 4
        campaign.selfcheck = SelfCheck(canaries=3, canaries_found=2)
        assert exit_code_of(campaign, state) == 3

    def test_a_campaign_without_overlap_is_no_pass(self, tmp_path: Path) -> None:
        campaign, state = self.small_campaign(tmp_path)
        idle = {**state.exercised, "overlapped_ops": 0}
        assert exit_code_of(campaign, msgspec.structs.replace(state, exercised=idle)) == 4

    def test_a_state_from_before_the_self_checks_is_read(self, tmp_path: Path) -> None:
        self.fuzz(tmp_path)
        path = tmp_path / STATE_FILE
        state = json.loads(path.read_text())
        del state["selfcheck"]
        path.write_text(json.dumps(state))
        assert self.fuzz(tmp_path).exit_code == 0

    def test_a_run_that_is_not_the_same_twice_is_reported(self) -> None:
        index = _with_chunks(seed=0)
        report = look_at(CampaignSpec(seed=0), index, drifting(), {"divergence/x"})
        assert report.selfcheck.mismatches == 1
        assert "prepared" in report.selfcheck.problems[0]


def _with_chunks(seed: int) -> int:
    """A generated scenario that is run twice and has discarded rows."""
    for index in range(2000):
        if is_run_twice(seed, index):
            drawn = generate(seeded(seed, index), name="x")
            if Checker(drawn).run().stats.exercised["discarded_rows"]:
                return index
    raise AssertionError("no such scenario")
