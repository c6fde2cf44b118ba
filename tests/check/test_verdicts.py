"""No verdict says more than was looked at: every way to PROVED or BENIGN that skipped something."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import numpy as np
import pytest

import racegate.check.sharing
from agreeing import agree
from racegate.check.checker import Checker
from racegate.check.checkpoint import CheckpointError
from racegate.check.expected import CheckError
from racegate.check.limits import RunLimitError, limited_memory
from racegate.check.repro.search import search
from racegate.check.selfcheck import canary_scenario
from racegate.check.sharing import SharedRuns, SharingWarning
from racegate.explore.ladder import Climb, Rung
from racegate.faults.catalogue import find_fault
from racegate.history.finding import ALL_ORACLES, Benign, Oracle, Verdict, exit_code
from racegate.history.schedule import EAGER, parse_schedule
from racegate.history.stats import cut_off
from racegate.scenario.expect import Expect
from racegate.scenario.settings import CacheMode
from racegate.scenario.spec import OwnScenario
from support import checker, scenario

FINISH = "finish-and-condense"
RACE = find_fault("accepted-read-before-copy")


def changed(name: str, **fields: Any) -> OwnScenario:
    return msgspec.structs.replace(scenario(name), **fields)


class TestCutOff:
    def test_wherever_a_run_is_cut_off_it_is_no_proof(self) -> None:
        whole = checker(FINISH).run()
        assert (whole.verdict, whole.unmet) == (Verdict.PROVED, ())
        for steps in range(1, whole.stats.steps):
            cut = Checker(changed(FINISH, steps_max=steps, expect=Expect())).run()
            assert cut.verdict is Verdict.INCONCLUSIVE, steps
            assert f"cut off after {steps} steps, steps_max is {steps}: " in cut.unmet[0]
        assert "1 steps were in flight" in cut.unmet[0], "the last step has not been looked at"

    def test_it_names_the_requests(self) -> None:
        cut = Checker(changed(FINISH, steps_max=2)).run()
        assert "request A did not end" in " ".join(cut.unmet)
        assert exit_code([cut.verdict]) == 4

    def test_it_says_who_starved_and_since_when(self) -> None:
        subject = checker(FINISH)
        run = subject.execute()
        assert run.result is not None
        left = msgspec.structs.replace(run.result, finished={"A": "unfinished", "C": "unfinished"})
        (said,) = cut_off(subject.scenario, dataclasses.replace(run, result=left))
        assert "request A did not end and starves: not scheduled since step 3" in said
        assert "request C did not end" in said and said.count("starves") == 1

    def test_a_finding_outweighs_it(self) -> None:
        subject = Checker(msgspec.structs.replace(canary_scenario(CacheMode.ALIGN), steps_max=4))
        cut = subject.run(fault=find_fault("accepted-double-remap"))
        assert cut.verdict is Verdict.DIVERGENT

    def test_every_class_of_a_run_that_was_cut_off_is_not_benign(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both ways, so that the end of the run is what decides."""

        def complete(subject: Any, **options: object) -> Climb[Any]:
            first = subject.with_schedule(EAGER)
            return Climb(
                first=first,
                wrong=None,
                stage=Rung.DPOR,
                schedules=2,
                progress=None,
                is_complete=True,
            )

        monkeypatch.setattr("racegate.check.repro.search.climb", complete)
        whole = canary_scenario(CacheMode.ALIGN)
        cut = msgspec.structs.replace(whole, steps_max=5)
        assert search(Checker(whole), fault=RACE).verdict is Verdict.BENIGN
        assert search(Checker(cut), fault=RACE).verdict is Verdict.INCONCLUSIVE


class TestNotLookedAt:
    @pytest.mark.parametrize("oracle", list(Oracle))
    def test_without_an_oracle_nothing_is_proved(self, oracle: Oracle) -> None:
        subject = checker(FINISH)
        result = subject.judge(subject.execute(), oracles=ALL_ORACLES - {oracle})
        assert result.verdict is Verdict.INCONCLUSIVE
        assert result.unmet == (f"oracle {oracle} was not asked",)

    def test_a_query_that_nothing_orders_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("racegate.check.judge.has_unordered_query", lambda trace: True)
        result = checker(FINISH).run()
        assert result.verdict is Verdict.INCONCLUSIVE
        assert "a completion flag was queried" in result.unmet[0]

    @pytest.mark.parametrize(
        "hold", ["d2h:sampled@99 until forced", "d2h:sampled@3 until host:x@9"]
    )
    def test_a_hold_that_was_not_realised_alone_and_from_checkpoints(self, hold: str) -> None:
        schedule = parse_schedule([hold])
        runs = SharedRuns(checker(FINISH))
        results = (checker(FINISH).run(schedule=schedule), runs.run(schedule))
        assert agree(results)
        assert results[1].verdict is Verdict.INCONCLUSIVE
        assert results[1].unmet == (f"hold '{hold}' was not realised",)

    def test_a_splice_of_a_run_that_was_cut_off_is_cut_off(self) -> None:
        runs = SharedRuns(Checker(changed(FINISH, steps_max=6)))
        result = runs.run(parse_schedule(["d2h:sampled@3 until forced"]))
        assert runs.shared == 1
        assert (result.verdict, result.unmet) == (Verdict.INCONCLUSIVE, runs.eager.unmet)

    def test_sharing_that_gives_up_says_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuses(*roots: object, **options: object) -> None:
            raise CheckpointError("planted")

        monkeypatch.setattr(racegate.check.sharing, "Checkpoint", refuses)
        with pytest.warns(SharingWarning, match="planted"):
            runs = SharedRuns(checker(FINISH))
        schedule = parse_schedule(["d2h:sampled@99 until forced"])
        assert agree((checker(FINISH).run(schedule=schedule), runs.run(schedule)))
        assert (runs.shared, runs.own) == (0, 1)

    @pytest.mark.parametrize("count", [1, 2])
    def test_observations_that_are_missing_at_the_end_are_a_finding(self, count: int) -> None:
        subject = checker(FINISH)
        run = subject.execute()
        short = dataclasses.replace(run, observations=run.observations[:-count])
        result = subject.judge(short)
        assert result.verdict is Verdict.DIVERGENT
        assert result.findings[0].field == "processed.boundaries"

    def test_what_is_promised_is_wanted_of_a_fault_that_shows_nothing(self) -> None:
        promising = Checker(changed(FINISH, expect=Expect(preemptions=1)))
        silent = promising.run(fault=find_fault("counts/private-snapshot"))
        assert silent.findings == ()
        assert silent.verdict is Verdict.INCONCLUSIVE
        assert "preemptions: 0" in silent.unmet[0]

    def test_a_float_scenario_that_cannot_be_decided_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("racegate.check.expected.FLOAT_TOLERANCE", float("inf"))
        monkeypatch.setattr("racegate.check.expected.MODEL_SEEDS_MAX", 2)
        with pytest.raises(CheckError, match="none of the model seeds"):
            Checker(scenario("float32-hybrid"))

    @pytest.mark.parametrize("budget", [1, 2, 8])
    def test_a_budget_that_ends_before_the_classes_is_no_pass(self, budget: int) -> None:
        result = search(Checker(canary_scenario(CacheMode.ALIGN)), fault=RACE, budget=budget)
        assert result.search is not None
        assert not result.search.is_complete
        assert result.verdict in (Verdict.CONFLICT, Verdict.DIVERGENT)


def test_benign_is_a_pass_unless_it_is_strict() -> None:
    assert exit_code([Verdict.BENIGN, Verdict.PROVED]) == 0
    assert exit_code([Verdict.BENIGN, Verdict.PROVED], benign=Benign.FINDING) == 1
    assert exit_code([Verdict.PROVED], benign=Benign.FINDING) == 0
    assert exit_code([Verdict.BENIGN, Verdict.BROKEN_HARNESS], benign=Benign.FINDING) == 3


def test_what_a_fault_left_out_is_not_asked_for_beside_its_findings() -> None:
    """A run that went wrong need not exercise what its scenario promises; any other has to."""
    asked = changed(FINISH, expect=Expect(condense_moves=999))
    fault = find_fault("accepted-double-remap")
    wrong, right = Checker(asked).run(fault=fault), Checker(asked).run()
    assert wrong.findings and wrong.unmet == ()
    assert right.findings == () and right.verdict is Verdict.INCONCLUSIVE
    assert "condense_moves" in right.unmet[0]


class TestMemory:
    def test_an_array_beyond_the_limit_is_refused(self) -> None:
        says = r"16\.0 GiB.*a whole run may take 1 GiB"
        with pytest.raises(RunLimitError, match=says), limited_memory(1 << 30):
            np.ones(1 << 32, np.int32)
        assert np.ones(1 << 10, np.int32).all()

    def test_what_is_asked_for_is_counted_in_bytes(self) -> None:
        with pytest.raises(RunLimitError), limited_memory(1 << 28):
            np.empty(1 << 26, np.float64)

    def test_what_sums_up_is_refused_too_and_no_limit_is_left_behind(self) -> None:
        def piece_by_piece() -> None:
            pieces = [np.empty(1 << 24, np.float64) for _ in range(4)]
            assert len(pieces) == 4

        with pytest.raises(MemoryError), limited_memory(1 << 28):
            piece_by_piece()
        piece_by_piece()

    def test_out_of_memory_is_no_defect(self) -> None:
        with pytest.raises(MemoryError), limited_memory():
            raise MemoryError

    def test_a_kernel_that_asks_for_too_much_is_a_crash(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def step(engine: object, number: int) -> None:
            np.ones(1 << 35, np.int32)

        monkeypatch.setattr("racegate.engine.engine.AsyncEngine.step", step)
        result = Checker(scenario(FINISH)).run()
        assert result.verdict is Verdict.DIVERGENT
        assert result.findings[-1].signature == "crash/RunLimitError"
