"""A/B runs at a tiny size: what is right is right, what is wrong is counted, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from racegate.check.checker import Checker
from racegate.device.recorder import NullRecorder
from racegate.device.virtual.device import VirtualDevice
from racegate.engine.state.tracked import Finish
from racegate.faults.fault import Fault
from racegate.history.replayed import ReplayOutcome
from racegate.history.schedule import LATE
from racegate.measure.ab.folder import Folder, missing, open_folder, read_folder
from racegate.measure.ab.held import run_held
from racegate.measure.ab.running import AbRunner, WaveProgress, WaveShare, parse_share, worker_here
from racegate.measure.ab.summary import AbReport, ArmReport, summarise
from racegate.measure.ab.waves import (
    ArmWave,
    TruthError,
    TruthWave,
    VirtualWaveSite,
    check_truth,
    first_difference,
    run_arm,
    run_truth,
)
from racegate.measure.ab.workload import (
    ARMS,
    PROMPT_MAX,
    PROMPT_MIN,
    STOP_TOKEN,
    AbError,
    AbSpec,
    Arm,
    scenario_of,
    truth_table,
)
from racegate.scenario.validation import validate
from support import SCENARIOS

PLAN = AbSpec(
    device="virtual", generations=30, wave=12, rows=6, max_tokens=40, vocab_size=30, checked=5
)
WHERE = {"device": "virtual"}


@pytest.fixture(scope="module")
def truth() -> TruthWave:
    return run_truth(VirtualWaveSite(), PLAN, 0, WHERE)


def run_all(folder: Folder, *arms: Arm, **options: Any) -> list[WaveProgress]:
    """One call; what it has shown."""
    seen: list[WaveProgress] = []
    make = worker_here(folder, VirtualWaveSite(), WHERE)
    AbRunner(folder, arms, make, **options).run(seen.append)
    return seen


def untimed(report: AbReport) -> dict[str, Any]:
    """A report without what differs from run to run."""
    value: dict[str, Any] = msgspec.to_builtins(report)
    for part in (value["truth"], *value["arms"]):
        for name in ("seconds", "setup_seconds", "tokens_per_second"):
            del part[name]
    return value


class TestWorkload:
    @pytest.mark.parametrize("arm", Arm)
    def test_every_arm_is_a_possible_scenario(self, arm: Arm) -> None:
        of = validate(scenario_of(PLAN, 2, arm))
        assert [request.name for request in of.requests] == [f"g{i}" for i in range(24, 30)]
        for request in of.requests:
            assert PROMPT_MIN <= len(request.prompt) <= PROMPT_MAX
            assert request.stop_token == STOP_TOKEN

    def test_what_an_arm_is(self) -> None:
        specs = {arm: scenario_of(PLAN, 0, arm).engine for arm in Arm}
        assert specs[Arm.NO_SPECULATION].draft_len_max == 0
        assert specs[Arm.NO_SPECULATION].depth == 2
        assert (specs[Arm.DEPTH_ONE].depth, specs[Arm.DEPTH_ONE].draft_len_max) == (1, 3)
        assert specs[Arm.GRAPHS_OFF].graph_mode == "eager"
        assert specs[Arm.GRAPHS_PIECEWISE].graph_mode == "piecewise"
        assert specs[Arm.REMAP_DEPTH_ONE] == specs[Arm.DEPTH_ONE]
        assert Arm.REMAP_DEPTH_ONE.fault is Arm.DOUBLE_REMAP.fault
        faults = [None if arm.fault is None else arm.fault.name for arm in ARMS]
        assert faults == [
            None,
            "accepted-copy-after-row-move",
            "accepted-double-remap",
            *4 * [None],
        ]

    def test_generations_do_not_depend_on_how_they_are_run(self) -> None:
        other = msgspec.structs.replace(PLAN, wave=30, rows=3)
        whole = scenario_of(other, 0, Arm.FAULT_FREE).requests
        parts = [scenario_of(PLAN, wave, Arm.TRUTH).requests for wave in range(PLAN.waves)]
        assert whole == sum(parts, ())

    @given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 80))
    def test_the_sample_is_spread_over_all(self, total: int, wave: int, checked: int) -> None:
        plan = msgspec.structs.replace(PLAN, generations=total, wave=wave, checked=checked)
        parts = [plan.indices(number) for number in range(plan.waves)]
        assert [index for part in parts for index in part] == list(range(total))
        sample = [index for number in range(plan.waves) for index in plan.checked_in(number)]
        assert len(set(sample)) == len(sample) == min(checked, total)
        gaps = [b - a for a, b in pairwise(sample)]
        assert not gaps or max(gaps) - min(gaps) <= 1

    def test_the_reference_engine_proves_a_wave_of_every_design(self, truth: TruthWave) -> None:
        # The truth table stands for the reference's own truth up to every request's end.
        of = scenario_of(PLAN, 0, Arm.FAULT_FREE)
        judge = Checker(of)
        assert judge.run(schedule=LATE).findings == ()
        assert tuple(judge.plain.values()) == truth.tokens
        table = truth_table(of, truth.tokens)
        for request, tokens in zip(of.requests, truth.tokens, strict=True):
            end = len(request.prompt) + len(tokens)
            assert table[request.name][:end] == judge.subject.truth[request.name][:end]
            assert len(table[request.name]) == len(judge.subject.truth[request.name])


class TestWaves:
    @pytest.mark.parametrize("arm", [arm for arm in ARMS if arm.fault is None])
    def test_an_engine_without_a_fault_delivers_the_truth(self, arm: Arm, truth: TruthWave) -> None:
        found = run_arm(VirtualWaveSite(), PLAN, arm, truth, WHERE)
        assert (found.wrong, found.stopped) == (0, None)
        assert found.lengths == tuple(map(len, truth.tokens))
        assert found.finished == truth.finished
        assert {Finish.STOP, Finish.MAX_TOKENS} == set(found.finished)
        assert found.counters["row_moves"] > 0

    def test_a_count_read_from_the_wrong_row_spoils_generations(self, truth: TruthWave) -> None:
        found = run_arm(VirtualWaveSite(), PLAN, Arm.DOUBLE_REMAP, truth, WHERE)
        assert found.wrong > 0
        # Nothing is ever read wrongly if every count is 1.
        control = run_arm(VirtualWaveSite(), PLAN, Arm.REMAP_NO_SPECULATION, truth, WHERE)
        assert control.wrong == 0

    def test_a_wrong_truth_is_noticed(self, truth: TruthWave) -> None:
        of = scenario_of(PLAN, 0, Arm.TRUTH)
        assert check_truth(PLAN, 0, of, truth.tokens) == truth.checked == 2
        sampled = PLAN.checked_in(0)[1]
        for tokens in ((0, *truth.tokens[sampled][1:]), truth.tokens[sampled][:-1]):
            planted = (*truth.tokens[:sampled], tokens, *truth.tokens[sampled + 1 :])
            with pytest.raises(TruthError, match=f"g{sampled} of wave 0"):
                check_truth(PLAN, 0, of, planted)

    @pytest.mark.parametrize(
        ("found", "expected", "place"),
        [
            ((1, 2), (1, 2), -1),
            ((1, 2), (1, 3), 1),
            ((1,), (1, 3), 1),
            ((1, 3), (1,), 1),
            ((), (1,), 0),
        ],
    )
    def test_the_first_difference(
        self, found: tuple[int, ...], expected: tuple[int, ...], place: int
    ) -> None:
        assert first_difference(found, expected) == place


class Breaking(VirtualDevice):
    """An engine on it stops by an assertion in step 9."""

    def mark(self, alias: str, *, step: int) -> None:
        if step == 9:
            raise AssertionError("planted")


class BreakingWaveSite:
    @contextmanager
    def opened(self, lanes: tuple[str, ...], fault: Fault | None) -> Iterator[Any]:
        yield Breaking(lanes, recorder=NullRecorder(lanes))


class TestFolder:
    def test_an_engine_that_breaks_off_loses_what_it_had_not_finished(
        self, tmp_path: Path, truth: TruthWave
    ) -> None:
        folder = open_folder(tmp_path, PLAN)
        folder.save_truth(truth)
        wave = run_arm(BreakingWaveSite(), PLAN, Arm.FAULT_FREE, truth, WHERE)
        folder.save_wave(wave)
        report = arm_report(summarise(folder, [Arm.FAULT_FREE]))
        assert wave.stopped == "step 9: AssertionError: planted"
        assert 0 < report.lost == wave.finished.count(Finish.UNFINISHED) <= 12
        assert (report.generations, report.wrong, report.shorter) == (12, 0, 0)
        assert [(stop.wave, stop.lost) for stop in report.stops] == [(0, report.lost)]
        # The arm goes on, and it is not a pass.
        run_all(folder, Arm.FAULT_FREE)
        report = arm_report(summarise(folder, [Arm.FAULT_FREE]))
        assert (report.waves, report.generations) == (3, 30)
        assert not summarise(folder, [Arm.FAULT_FREE]).is_right

    def test_figures_of_a_fault(self, tmp_path: Path) -> None:
        folder = open_folder(tmp_path, PLAN)
        run_all(folder, Arm.FAULT_FREE, Arm.DOUBLE_REMAP)
        report = summarise(folder, [Arm.FAULT_FREE, Arm.DOUBLE_REMAP])
        right, wrong = report.arms
        assert report.is_right
        assert report.missing == 0
        assert report.truth.checked == 5
        assert (right.wrong, right.lost, right.first_wrong_median) == (0, 0, None)
        assert right.found == right.truth == report.truth.lengths
        assert sum(right.found.ends.values()) == wrong.generations == 30
        assert right.found.below["64"] == 30 > right.found.below["32"] > 0
        assert wrong.wrong >= wrong.shorter + wrong.longer > 0
        assert wrong.first_wrong_median is not None
        assert wrong.truth == right.truth != wrong.found
        assert wrong.fault == "accepted-double-remap"

    def test_a_stopped_run_goes_on_where_it_was(self, tmp_path: Path) -> None:
        arms = (Arm.FAULT_FREE, Arm.DOUBLE_REMAP)
        folder = open_folder(tmp_path / "piecemeal", PLAN)
        calls = 0
        while missing(folder, arms):
            before = {path: path.stat().st_mtime_ns for path in (tmp_path / "piecemeal").rglob("*")}
            (seen,) = run_all(open_folder(tmp_path / "piecemeal", PLAN), *arms, seconds=0.0)
            calls += 1
            assert seen.units == 10 - calls
            files = [path for path in before if path.is_file()]
            assert all(path.stat().st_mtime_ns == before[path] for path in files)
        assert calls == 9
        whole = open_folder(tmp_path / "whole", PLAN)
        assert len(run_all(whole, *arms)) == 9
        assert untimed(summarise(folder, arms)) == untimed(summarise(whole, arms))

    def test_parts_make_a_whole(self, tmp_path: Path) -> None:
        for index in (1, 2):
            folder = open_folder(tmp_path, PLAN)
            run_all(folder, Arm.GRAPHS_OFF, share=WaveShare(index, 2))
        report = summarise(read_folder(tmp_path), read_folder(tmp_path).arms())
        assert [arm.arm for arm in report.arms] == [Arm.GRAPHS_OFF]
        assert (report.missing, report.arms[0].generations) == (0, 30)

    @pytest.mark.parametrize("text", ["0/2", "3/2", "2", "a/b", "1/0", "-1/2"])
    def test_parts_that_are_none(self, text: str) -> None:
        with pytest.raises(AbError, match="second of four"):
            parse_share(text)

    def test_a_folder_belongs_to_one_plan(self, tmp_path: Path) -> None:
        open_folder(tmp_path, PLAN)
        other = msgspec.structs.replace(PLAN, rows=7)
        with pytest.raises(AbError, match="rows 6, not 7"):
            open_folder(tmp_path, other)
        with pytest.raises(AbError, match="holds no A/B run"):
            read_folder(tmp_path / "elsewhere")

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"wave": 0}'])
    def test_a_damaged_wave_is_named(self, tmp_path: Path, content: bytes) -> None:
        folder = open_folder(tmp_path, PLAN)
        run_all(folder, Arm.GRAPHS_OFF)
        (tmp_path / "graphs-off" / "0001.json").write_bytes(content)
        with pytest.raises(AbError, match=r"graphs-off.0001\.json: cannot be read"):
            summarise(folder, [Arm.GRAPHS_OFF])

    def test_waves_are_written_as_they_are_read(self, tmp_path: Path, truth: TruthWave) -> None:
        folder = open_folder(tmp_path, PLAN)
        wave: ArmWave = run_arm(VirtualWaveSite(), PLAN, Arm.COPY_DEPTH_ONE, truth, WHERE)
        folder.save_truth(truth)
        folder.save_wave(wave)
        assert folder.truth(0) == truth
        assert folder.wave(Arm.COPY_DEPTH_ONE, 0) == wave
        assert folder.wave(Arm.COPY_DEPTH_ONE, 1) is None


def arm_report(report: AbReport) -> ArmReport:
    (found,) = report.arms
    return found


@pytest.mark.parametrize("fault", ["accepted-copy-after-row-move", "accepted-double-remap"])
def test_the_held_run_shows_the_fault_at_once(fault: str, tmp_path: Path) -> None:
    held = run_held(fault, SCENARIOS / "witnesses", cuda=None)
    assert (held.outcome, held.schedules, held.device) == (ReplayOutcome.REPRODUCED, 1, "virtual")
    folder = open_folder(tmp_path, PLAN)
    folder.save_held(held)
    assert folder.held() == (held,)
