"""What must stay silent, and its twins that must not (scenarios/controls/README.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from racegate.check.checker import Checker
from racegate.check.repro.explain import Racing, explain_pair
from racegate.faults.catalogue import find_fault
from racegate.history.finding import FindingKind, Verdict
from racegate.history.observe import Observation
from racegate.history.schedule import LATE, Schedule, lane_late
from racegate.oracles.paths import Ordered
from racegate.scenario.files import load
from racegate.scenario.settings import CacheMode
from racegate.scenario.spec import OwnScenario
from support import NAMES, SCENARIOS, checker, scenario

CONTROLS = sorted((SCENARIOS / "controls").glob("*.toml"))
FINISH = "finish-and-condense"
SCHEDULES = (Schedule(), LATE, lane_late("compute"), lane_late("counts"), lane_late("output"))


@pytest.mark.parametrize("path", CONTROLS, ids=lambda path: path.stem)
def test_without_a_fault_the_scripts_are_proved(path: Path) -> None:
    assert load(path).name == path.stem.replace("_", "-")
    assert Checker(load(path)).run(is_audited=True).verdict is Verdict.PROVED


class TestZeroDraftRows:
    """H-27: exact only because two steps are in flight."""

    FAULT = "correction/drafted-rows-only"

    def control(self, depth: str, cache_mode: CacheMode) -> Checker:
        read = load(SCENARIOS / "controls" / f"zero_drafts_depth_{depth}.toml")
        return Checker(in_mode(read, cache_mode))

    @pytest.mark.parametrize("cache_mode", [CacheMode.NONE, CacheMode.ALIGN])
    def test_at_depth_two_nothing_is_seen(self, cache_mode: CacheMode) -> None:
        subject = self.control("two", cache_mode)
        for schedule in SCHEDULES:
            result = subject.run(schedule=schedule, fault=find_fault(self.FAULT))
            assert result.findings == ()
            assert result.stats.exercised["zero_draft_rows"] >= 2

    def test_at_depth_three_it_is_found(self) -> None:
        result = self.control("three", CacheMode.NONE).run(fault=find_fault(self.FAULT))
        assert result.verdict is Verdict.DIVERGENT
        assert result.findings[0].field == "inputs.computed"
        assert result.findings[0].request == "A"

    def test_the_twins_differ_in_depth_only(self) -> None:
        two, three = (load(path) for path in (CONTROLS[1], CONTROLS[0]))
        assert (two.engine.depth, three.engine.depth) == (2, 3)
        deeper = msgspec.structs.replace(two.engine, depth=3)
        same = msgspec.structs.replace(
            two, engine=deeper, name=three.name, title=three.title, expect=three.expect
        )
        assert same == three

    @pytest.mark.parametrize("name", [n for n in NAMES if scenario(n).engine.depth <= 2])
    def test_no_script_of_the_gate_at_depth_two_sees_it(self, name: str) -> None:
        assert checker(name).run(fault=find_fault(self.FAULT)).findings == ()


class TestSameStream:
    """vllm#42603: a buffer written and then read by a kernel on one stream is no race."""

    @pytest.mark.parametrize(
        ("write", "read"),
        [
            ("h2d:block_table@4", "kernel:layer.2@4"),
            ("h2d:state_table@4", "kernel:layer.0@4"),
            # The next step's write behind this step's kernel: the same theory the other way round.
            ("kernel:layer.2@3", "h2d:block_table@4"),
            ("kernel:slot_mapping@4", "kernel:layer.2@4"),
        ],
    )
    def test_the_path_that_orders_the_pair_is_printed(self, write: str, read: str) -> None:
        found = explain_pair(checker(FINISH).execute().trace, write, read)
        assert isinstance(found, Ordered)
        assert (found.first, found.path[-1].to) == (write, read)
        assert all(step.by.startswith("stream order on compute") for step in found.path)

    def test_it_is_refuted_on_an_engine_with_another_race_too(self) -> None:
        trace = checker(FINISH).execute(fault=find_fault("pinned-input-overwrite")).trace
        found = explain_pair(trace, "h2d:block_table@4", "kernel:layer.2@4")
        assert isinstance(found, Ordered)

    def test_the_twin_is_the_pinned_source_that_the_host_rewrites(self) -> None:
        pair = ("h2d:input_ids@4", "host:prepare_inputs@5")
        clean = explain_pair(checker(FINISH).execute().trace, *pair)
        assert isinstance(clean, Ordered)
        racy = checker(FINISH).execute(fault=find_fault("pinned-input-overwrite")).trace
        race = explain_pair(racy, *pair)
        assert isinstance(race, Racing)
        assert race.buffer == "input_ids_cpu"


class TestLastKnownToken:
    """Production takes a request's last known token for every chunk."""

    FAULT = "backup-token/last-known"
    DRAFTER_FIELDS = frozenset(
        {"prepared.backup_token", "sampled.next_token", "sampled.draft_kv", "sampled.drafts"}
    )

    def differing(self, name: str, *, up_to_drafts: bool) -> set[str]:
        subject = checker(name)
        run = subject.execute(fault=find_fault(self.FAULT))
        seen: set[str] = set()
        for mine, right in zip(run.observations, subject.reference.observations, strict=False):
            seen |= different_fields(mine, right)
            if up_to_drafts and "sampled.drafts" in seen:
                break
        return seen

    def test_with_a_drafter_that_copies_only_the_drafters_fields_differ(self) -> None:
        # Its draft is the token sampled, so a wrong backup token reaches its cache and no draft.
        seen = self.differing("extract-hidden-states", up_to_drafts=False)
        assert seen == self.DRAFTER_FIELDS - {"sampled.drafts"}

    @pytest.mark.parametrize("name", ["chunked-prefill-backup-token", "mtp-drafter", "trace-azure"])
    def test_nothing_else_differs_until_a_draft_does(self, name: str) -> None:
        seen = self.differing(name, up_to_drafts=True)
        assert "prepared.backup_token" in seen
        assert seen <= self.DRAFTER_FIELDS

    @pytest.mark.parametrize("name", NAMES)
    def test_no_token_is_lost_and_no_state_is_wrong(self, name: str) -> None:
        result = checker(name).run(fault=find_fault(self.FAULT))
        assert {finding.kind for finding in result.findings} <= {FindingKind.DIVERGENCE}
        for finding in result.findings:
            assert finding.field == "prepared.backup_token"

    def test_discarded_rows_only(self) -> None:
        subject = checker("extract-hidden-states")
        run = subject.execute(fault=find_fault(self.FAULT))
        discarded = np.zeros(0, bool)
        for mine, right in zip(run.observations, subject.reference.observations, strict=True):
            discarded = mine.values.get("discarded", discarded)
            for field in ("backup_token", "next_token"):
                if field in right.values:
                    wrong = mine.values[field] != right.values[field]
                    assert not wrong[discarded == 0].any()


class TestFirstHole:
    """vllm#38372: counting up to the first hole, or all; on a legal row they are the same."""

    @pytest.mark.parametrize("name", NAMES)
    def test_the_run_is_the_same_bit_for_bit(self, name: str) -> None:
        plain = checker(name).execute()
        other = checker(name).execute(fault=find_fault("accepted-count-first-hole"))
        assert plain.trace.events == other.trace.events
        for one, two in zip(plain.observations, other.observations, strict=True):
            assert not different_fields(one, two)


def in_mode(read: OwnScenario, cache_mode: CacheMode) -> OwnScenario:
    engine = msgspec.structs.replace(read.engine, cache_mode=cache_mode)
    return msgspec.structs.replace(read, engine=engine)


def different_fields(mine: Observation, right: Observation) -> set[str]:
    """boundary.field of everything that differs, without layers."""
    assert (mine.step, mine.boundary) == (right.step, right.boundary)
    return {
        f"{right.boundary}.{field.partition('.')[0]}"
        for field, value in right.values.items()
        if not _same(mine.values[field], value)
    }


def _same(one: Any, other: Any) -> bool:
    if not isinstance(other, np.ndarray):
        return bool(one == other)
    if other.dtype.kind == "f":
        return one.shape == other.shape and bool(np.allclose(one, other, atol=1e-4, rtol=1e-4))
    return np.array_equal(one, other)
