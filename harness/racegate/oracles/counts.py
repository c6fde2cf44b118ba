"""Counts: what a run's observations show must be what the engine counted (I-68).

A scenario expects by these counts that something happened. An engine that counts wrongly could let
a run pass that exercised nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from racegate.history.observe import Boundary, Observation
from racegate.history.run import EngineResult
from racegate.oracles.invariants import Violation
from racegate.scenario.settings import CacheMode
from racegate.scenario.spec import Image, OwnScenario

INVARIANT = "I-68"
# Of these the observations show every one.
EXACT = (
    "rejections",
    "full_accepts",
    "full_rejects",
    "zero_draft_rows",
    "discarded_rows",
    "stale_frames",
    "stops_inside_run",
    "prefix_hits",
    "boundary_hits",
    "saves",
    "loads",
    "masked_rows",
    "slot_reuses",
)
# Of these some: an iteration without a plan is not observed, and a row may move twice in one.
LEAST = ("preemptions", "row_moves", "cascade_steps")


def find_miscounts(
    observations: Sequence[Observation], result: EngineResult, scenario: OwnScenario
) -> list[Violation]:
    """Counts that are not what was observed. observations: of a whole run"""
    history = _History(scenario)
    for seen in observations:
        history.add(seen)
    counted, shown = result.counters, history.counts
    # A prefix that gave way is saved again.
    least = LEAST if scenario.engine.prefixes_max is None else (*LEAST, "saves")
    wrong = [
        f"{name} is {counted[name]}, the observations show {shown[name]}"
        for name in EXACT
        if counted[name] != shown[name] and name not in least
    ]
    wrong += [
        f"{name} is {counted[name]}, the observations show at least {shown[name]}"
        for name in least
        if counted[name] < shown[name]
    ]
    if counted["row_moves"] != counted["condense_moves"] + counted["reorder_moves"]:
        wrong.append("row_moves is not the sum of condense_moves and reorder_moves")
    return [
        Violation(
            invariant=INVARIANT,
            step=result.steps - 1,
            boundary=Boundary.PROCESSED,
            request=None,
            message=message,
        )
        for message in wrong
    ]


class _History:
    """Counts along the observations of a run."""

    def __init__(self, scenario: OwnScenario) -> None:
        self.counts: Counter[str] = Counter()
        self._is_offload = scenario.engine.cache_mode is CacheMode.OFFLOAD
        self._has_columns = scenario.engine.cache_mode.has_columns
        self._interval = scenario.engine.state_interval
        self._prompts = {request.name: request.prompt for request in scenario.requests}
        self._images = {request.name: request.images for request in scenario.requests}
        self._constrained = {r.name for r in scenario.requests if r.grammar_modulus}
        self._plans: dict[int, Observation] = {}
        self._discarded: dict[int, set[str]] = {}
        self._emitted: dict[int, dict[str, int]] = {}
        self._rows: tuple[int, Mapping[str, int]] = (-1, {})
        self._slot_owners: dict[int, tuple[str, int]] = {}
        self._delivered: dict[str, tuple[int, ...]] = {}
        self._admitted: set[tuple[str, int]] = set()
        self._saved: set[tuple[tuple[int, ...], tuple[Image, ...]]] = set()
        self._ended: set[str] = set()

    def add(self, seen: Observation) -> None:
        """The next one."""
        match seen.boundary:
            case Boundary.SCHEDULED:
                self._scheduled(seen)
            case Boundary.PREPARED:
                self._prepared(seen)
            case Boundary.INPUTS:
                prefix = seen.values.get("common_prefix", (0,))[0]
                self.counts["cascade_steps"] += prefix > 0 and len(seen.detail["rows"]) > 1
            case Boundary.SAMPLED:
                tokens = (seen.values["sampled"] != -1).sum(axis=1).tolist()
                self._emitted[seen.step] = dict(zip(seen.detail["rows"], tokens, strict=True))
            case Boundary.PROCESSED:
                self._processed(seen)

    def _scheduled(self, seen: Observation) -> None:
        self._plans[seen.step] = seen
        self.counts["preemptions"] += len(seen.values["preempted"])
        for request, _, drafts in seen.values["plan"]:
            self.counts["zero_draft_rows"] += seen.detail["is_decode"][request] and drafts == 0
            tenure = (request, seen.detail["incarnation"][request])
            if tenure not in self._admitted:
                self._admitted.add(tenure)
                is_hit = seen.detail["computed"][request] > 0
                self.counts["prefix_hits"] += is_hit
                self.counts["loads"] += is_hit and self._is_offload

    def _prepared(self, seen: Observation) -> None:
        rows = {name: row for row, name in enumerate(seen.values["rows"])}
        discarded = {name for name, row in rows.items() if seen.values["discarded"][row]}
        self._discarded[seen.step] = discarded
        self.counts["discarded_rows"] += len(discarded)
        self.counts["masked_rows"] += len((self._constrained & rows.keys()) - discarded)
        if seen.detail.get("slots"):
            self._take_slots(seen)
        else:
            self._move_rows(seen.step, rows)
        if self._is_offload:
            ends = {name: seen.detail["chunk_end"][rows[name]] for name in discarded}
            self._saved |= {
                self._prefix(name, end) for name, end in ends.items() if end % self._interval == 0
            }
            self.counts["saves"] = len(self._saved)

    def _move_rows(self, this: int, rows: Mapping[str, int]) -> None:
        step, before = self._rows
        if step == this - 1:
            stayed = before.keys() & rows.keys() - set(self._plans[this].values["preempted"])
            self.counts["row_moves"] += sum(before[name] != rows[name] for name in stayed)
        self._rows = (this, rows)

    def _take_slots(self, seen: Observation) -> None:
        """Slots do not move: they are taken, and taken again."""
        incarnation = self._plans[seen.step].detail["incarnation"]
        for name, slot in zip(seen.values["rows"], seen.detail["slots"], strict=True):
            owner = (name, incarnation[name])
            self.counts["slot_reuses"] += self._slot_owners.get(slot, owner) != owner
            self._slot_owners[slot] = owner

    def _prefix(self, name: str, end: int) -> tuple[tuple[int, ...], tuple[Image, ...]]:
        """What a prefill chunk completes, the token behind it, and the images up to there."""
        tokens = (*self._prompts[name], *self._delivered.get(name, ()))
        images = tuple(image for image in self._images[name] if image.start <= end)
        return tokens[: end + 1], images

    def _processed(self, seen: Observation) -> None:
        plan = self._plans.pop(seen.step, None)
        if plan is None:  # a frame that is processed twice: others say so
            return
        emitted = self._emitted.pop(seen.step, {})
        discarded = self._discarded.pop(seen.step, set())
        for request, _, drafts in plan.values["plan"]:
            if request in self._ended:
                continue
            if request not in seen.detail["counters"]:
                self._ended.add(request)
            if request not in seen.values["delivered"]:  # it was aborted before
                continue
            before = self._delivered.get(request, ())
            self._delivered[request] = seen.values["delivered"][request]
            if seen.detail["incarnation"][request] != plan.detail["incarnation"][request]:
                self.counts["stale_frames"] += 1
            elif request in emitted and request not in discarded:
                kept = len(self._delivered[request]) - len(before)
                self.counts["stops_inside_run"] += kept < emitted[request]
                if drafts:
                    self._count_drafts(drafts, emitted[request])
                settled = len(self._prompts[request]) + len(before) + emitted[request] - 1
                is_at_boundary = self._has_columns and settled % self._interval == 0
                self.counts["boundary_hits"] += plan.detail["is_decode"][request] and is_at_boundary

    def _count_drafts(self, drafts: int, emitted: int) -> None:
        self.counts["rejections"] += emitted <= drafts
        self.counts["full_accepts"] += emitted == drafts + 1
        self.counts["full_rejects"] += emitted == 1
