"""The probe that takes observations, without disturbing what it observes. DEFINITION section 7.

Device values are copied by snapshots in stream order, which are not part of the program: they wait
for nothing and nothing waits for them. They are read when the device has finished, or, where it
lets the host read them before that, as soon as they are there: then only what is observed is kept.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from racegate.device.protocol import Device, DeviceBuffer, Snapshot, Stream
from racegate.engine.observe.details import (
    Promises,
    prepared_detail,
    processed_detail,
    scheduled_detail,
)
from racegate.engine.observe.probe import Preparation, Probe, ProbedMemory
from racegate.engine.observe.probe_blocks import (
    BlockRows,
    FreshTaken,
    Parts,
    StepSnapshots,
    as_entries,
    caches_of,
    conv_at,
    input_parts,
    loaded_parts,
    of_rows,
    token_windows,
)
from racegate.engine.scheduling.scheduler import Scheduler
from racegate.engine.state.buffers import StepOutputs
from racegate.engine.state.plan import StepPlan
from racegate.engine.state.tracked import Finish
from racegate.engine.state.view import StepView
from racegate.history.observe import Boundary, Observation
from racegate.scenario.settings import CacheMode
from racegate.scenario.spec import OwnScenario

# So many observations wait for somebody who asks for them: runs that turn out to show what another
# one showed are never asked. More would keep copies of whole caches.
UNRESOLVED_MAX = 8


class RecordingProbe(Probe):
    """Collects observations in the order of the engine's boundaries."""

    def __init__(
        self, scenario: OwnScenario, device: Device, stream: Stream, *, rank: int | None = None
    ) -> None:
        self._rank = rank
        self._memory: ProbedMemory
        self._scenario = scenario
        self._engine = scenario.engine
        self._conv_width = scenario.model.conv_width
        self._device = device
        self._stream = stream
        self._has_columns = scenario.engine.cache_mode.has_columns
        self._is_offload = scenario.engine.cache_mode is CacheMode.OFFLOAD
        self._is_all = scenario.engine.cache_mode is CacheMode.ALL
        self._fresh: dict[int, FreshTaken] = {}
        self._observations: list[Observation | tuple[int, Boundary]] = []
        self._taken: dict[int, StepSnapshots] = {}
        self._snapshots: deque[tuple[dict[str, np.ndarray], list[str], Snapshot]] = deque()
        self._unresolved: deque[int] = deque()  # places in the observations
        self._promises = Promises()
        self._computed_host = np.zeros(0, np.int32)
        self._backup = np.zeros(0, np.int32)

    def attach(self, memory: ProbedMemory) -> None:
        """From now on it looks at this engine."""
        self._memory = memory

    def scheduled(self, plan: StepPlan, scheduler: Scheduler, *, in_flight: int) -> None:
        """What is to run. in_flight: frames, this one included."""
        self._promises.scheduled(plan)
        values: dict[str, object] = {
            "plan": tuple((entry.request, entry.tokens, entry.drafts) for entry in plan.entries),
            "preempted": plan.preempted,
            "block_table": {entry.request: entry.blocks for entry in plan.entries},
            "state_table": {entry.request: entry.state_blocks for entry in plan.entries},
        }
        detail = scheduled_detail(plan, scheduler, self._promises, in_flight=in_flight)
        self._add(plan.step, Boundary.SCHEDULED, values, detail)

    def prepared(self, view: StepView, preparation: Preparation) -> None:
        """Rows, and what the host has worked out for them."""
        self._computed_host = np.array([state.computed for state in view.states])
        self._backup = preparation.backup
        threshold = 1 + self._engine.draft_len_max
        detail = prepared_detail(view, preparation, threshold=threshold)
        values = {
            "rows": view.rows,
            "discarded": view.discarded != 0,
            "backup_token": preparation.backup,
            "accept_target": preparation.targets,
        }
        self._add(view.shape.step, Boundary.PREPARED, values, detail)

    def zeroed(self, view: StepView) -> None:
        """New blocks, right behind their zeroing."""
        fresh = self._fresh[view.shape.step] = FreshTaken(view, self._engine)
        self._take(fresh.arrays, fresh.parts(self._memory))

    def inputs(self, view: StepView) -> None:
        """What the forward pass is about to read."""
        memory = self._memory
        taken = StepSnapshots(
            view,
            self._windows(view),
            self._computed_host,
            self._backup,
            BlockRows(entry.blocks for entry in view.entries),
            BlockRows(entry.state_blocks for entry in view.entries),
        )
        self._taken[view.shape.step] = taken
        parts = input_parts(view, memory, self._scenario)
        if self._is_offload:
            parts |= loaded_parts(view, self._engine, caches_of(memory))
        if memory.window_table is not None:
            parts["window_table"] = (memory.window_table, view.shape.rows)
        self._take(taken.inputs, parts | self._recurrent(taken))
        self._add_unresolved(view.shape.step, Boundary.INPUTS)

    def forwarded(self, view: StepView) -> None:
        """The states that the pass left."""
        taken = self._taken[view.shape.step]
        self._take(taken.forwarded, self._recurrent(taken))

    def sampled(self, view: StepView, outputs: StepOutputs, sampled: DeviceBuffer) -> None:
        """Everything that the step made. sampled: [R, 1 + K] int32"""
        rows, memory = view.shape.rows, self._memory
        taken = self._taken[view.shape.step]
        parts: Parts = {
            "sampled": (sampled, rows),
            "accepted": (memory.work.accepted, rows),
            "valid_count": (outputs.valid_count, rows),
            "next_token": (outputs.next_token, rows),
            "drafts": (outputs.drafts, rows),
        }
        if outputs.draft_weights is not None:
            parts["draft_weights"] = (outputs.draft_weights, rows)
        blocks, state_blocks = taken.blocks.blocks, taken.state_blocks.blocks
        parts |= {name: (cache, blocks) for name, cache in caches_of(memory).items()}
        if self._has_columns:
            states = memory.model.states
            parts |= {f"pool.{index}": (pool, state_blocks) for index, pool in states.items()}
        self._take(taken.sampled, parts)
        self._add_unresolved(view.shape.step, Boundary.SAMPLED)

    def processed(self, plan: StepPlan, scheduler: Scheduler) -> None:
        """What the scheduler made of an output."""
        self._promises.processed(plan)
        tracked = [scheduler.requests[entry.request] for entry in plan.entries]
        live = [request for request in tracked if request.finish is not Finish.ABORT]
        values = {
            "delivered": {r.name: tuple(r.tokens[len(r.request.prompt) :]) for r in live},
            "computed": {r.name: r.computed for r in live},
            "placeholders": {r.name: r.placeholders for r in live},
        }
        detail = processed_detail(plan, scheduler, self._promises)
        self._add(plan.step, Boundary.PROCESSED, values, detail)
        if len(self._unresolved) > UNRESOLVED_MAX:
            while self._snapshots and self._snapshots[0][2].is_readable:
                self._read_snapshot()
            self._resolve_read()

    @property
    def count(self) -> int:
        """How many observations have been begun."""
        return len(self._observations)

    def observations(self, *, first: int = 0) -> tuple[Observation, ...]:
        """What was observed, in order, from the `first` on and up to where the device got."""
        while self._snapshots and self._snapshots[0][2].is_done:
            self._read_snapshot()
        self._resolve_read()
        end = self._unresolved[0] if self._unresolved else len(self._observations)
        begun = self._observations[first:end]
        return tuple([item for item in begun if isinstance(item, Observation)])

    def _read_snapshot(self) -> None:
        """Takes the values of the oldest one, and lets it go."""
        target, names, snapshot = self._snapshots.popleft()
        target.update(zip(names, snapshot.arrays(), strict=True))

    def _resolve_read(self) -> None:
        """Makes observations of what was read."""
        while self._unresolved:
            place = self._unresolved[0]
            item = self._observations[place]
            assert not isinstance(item, Observation), "it is resolved once"
            step, boundary = item
            taken = self._taken[step]
            if not (taken.inputs if boundary is Boundary.INPUTS else taken.sampled):
                return
            self._observations[place] = self._resolve(step, boundary)
            self._unresolved.popleft()
            if boundary is Boundary.SAMPLED:
                del self._taken[step]
                self._fresh.pop(step, None)

    def _add_unresolved(self, step: int, boundary: Boundary) -> None:
        self._unresolved.append(len(self._observations))
        self._observations.append((step, boundary))

    def _add(
        self, step: int, boundary: Boundary, values: dict[str, object], detail: dict[str, object]
    ) -> None:
        self._observations.append(
            Observation(step=step, boundary=boundary, values=values, detail=detail, rank=self._rank)
        )

    def _take(self, target: dict[str, np.ndarray], parts: Parts) -> None:
        snapshot = self._device.snapshot(self._stream, tuple(parts.values()))
        self._snapshots.append((target, list(parts), snapshot))

    def _windows(self, view: StepView) -> np.ndarray:
        """[R, 1 + K] int64: the blocks of each row's running state window."""
        width = 1 + self._engine.draft_len_max
        windows = np.zeros((view.shape.rows, width), np.int64)
        for row, (entry, state) in enumerate(zip(view.entries, view.states, strict=True)):
            column = state.column if self._has_columns else 0
            blocks = entry.state_blocks[column : column + width]
            windows[row, : len(blocks)] = blocks
        return windows

    def _recurrent(self, taken: StepSnapshots) -> Parts:
        parts: Parts = {}
        model, windows = self._memory.model, taken.windows
        if self._memory.window_table is None:
            rows, first = windows, windows[:, 0]
        else:  # all that the windows can name, until the device has told what they do name
            rows = first = taken.state_blocks.blocks
        for index, pool in model.states.items():
            parts[f"state.{index}"] = (pool, rows)
            parts[f"conv.{index}"] = (model.conv_windows[index], first)
        return parts

    def _resolve(self, step: int, boundary: Boundary) -> Observation:
        taken = self._taken[step]
        view = taken.view
        if self._memory.window_table is not None:
            self._find_windows(taken, boundary)
        detail = {"rows": view.rows, "is_decode": view.is_decode, "draft_lens": view.draft_lens}
        if boundary is Boundary.INPUTS:
            values = self._inputs_values(taken)
            detail |= {"computed_host": taken.computed_host, "windows": taken.windows}
            if "common_prefix" in values:
                detail["block_tables"] = [entry.blocks for entry in view.entries]
            if taken.live is not None:
                detail["live"] = taken.live
                detail["state_tables"] = [entry.state_blocks for entry in view.entries]
        else:
            values = self._sampled_values(taken)
            detail |= {
                "sampled": taken.sampled["sampled"],
                "discarded": view.discarded,
                "backup_token": taken.backup,
            }
        for value in values.values():  # a checkpoint does not have to keep what cannot change
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
        return Observation(
            step=step, boundary=boundary, values=values, detail=detail, rank=self._rank
        )

    def _find_windows(self, taken: StepSnapshots, boundary: Boundary) -> None:
        """The device has told where states stand: of what was copied, just these remain."""
        if boundary is Boundary.SAMPLED:
            convolved = self._kept(taken) - 1 if self._is_all else 0
            taken.state_blocks.pick(taken.forwarded, taken.windows, convolved=convolved)
            return
        taken.windows = blocks = taken.inputs.pop("window_table").astype(np.int64)
        if self._is_all:
            taken.windows, taken.live = token_windows(blocks, taken.view, self._engine)
            blocks = taken.live[:, None]
        taken.state_blocks.pick(taken.inputs, blocks, convolved=0)

    def _inputs_values(self, taken: StepSnapshots) -> dict[str, object]:
        arrays = taken.inputs
        values: dict[str, object] = {
            name: array
            for name, array in arrays.items()
            if not name.startswith(("state.", "conv."))
        }
        is_empty = arrays["computed"] <= 0
        live = self._column_of(arrays["accepted"])
        for name, array in arrays.items():
            if name.startswith("state."):
                values[name] = of_rows(array, live, is_empty)
            elif name.startswith("conv."):
                values[name] = conv_at(array, live, is_empty, width=self._conv_width)
            elif name.startswith("loaded_"):
                values[name] = as_entries(array)
        fresh = self._fresh.get(taken.view.shape.step)
        if fresh is not None:
            values["fresh_dirty"] = fresh.dirty()
        return values

    def _sampled_values(self, taken: StepSnapshots) -> dict[str, object]:
        view, raw = taken.view, taken.sampled
        is_discarded = view.discarded != 0
        accepted = raw["accepted"]
        values: dict[str, object] = {
            "sampled": np.where(is_discarded[:, None], -1, raw["sampled"]),
            "accepted": accepted,
            "valid_count": raw["valid_count"],
            "next_token": raw["next_token"],
            "drafts": np.where(is_discarded[:, None], -1, raw["drafts"]),
        }
        if "draft_weights" in raw:
            values["draft_weights"] = raw["draft_weights"] * ~is_discarded[:, None, None]
        kept = self._kept(taken)
        for name, array in taken.forwarded.items():
            if name.startswith("state."):
                live = np.arange(array.shape[1]) < kept[:, None]
                shown = live.reshape(*live.shape, *[1] * (array.ndim - 2))
                values[name] = np.where(shown, array, np.zeros((), array.dtype))
            else:
                offset, nothing = self._column_of(kept), np.zeros(len(kept), bool)
                values[name] = conv_at(array, offset, nothing, width=self._conv_width)
        final = self._final_computed(taken)
        tokens, found = self._entries(taken, final)
        for name, array in raw.items():
            if name.startswith("kv.") or name == "draft_kv":
                entries = np.zeros((len(taken.inputs["positions"]), array.shape[-1]), array.dtype)
                entries[tokens] = as_entries(array)[found]
                values[name] = entries
            elif name.startswith("pool."):
                layer = name.removeprefix("pool.")
                values[f"checkpoint.{layer}"] = self._checkpoints(taken, array, final)
        return values

    def _column_of(self, counts: np.ndarray) -> np.ndarray:
        """[R]: a count's place in a window. In cache mode all there is no window to choose from."""
        return counts * 0 if self._is_all else counts - 1

    def _kept(self, taken: StepSnapshots) -> np.ndarray:
        """[R]: how many states of its window each row keeps."""
        return np.where(taken.view.is_decode != 0, taken.sampled["accepted"], 1)

    def _final_computed(self, taken: StepSnapshots) -> np.ndarray:
        """[R]: tokens whose state is final after the step."""
        view = taken.view
        final: np.ndarray = taken.inputs["computed"] + view.tokens
        rejected = view.draft_lens + 1 - taken.sampled["accepted"]
        return np.where(view.discarded != 0, final, final - rejected)

    def _entries(self, taken: StepSnapshots, final: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[n] and [n] int64: the step's kept tokens, and where the plan's block tables have their
        cache entries, among those of the blocks that were copied.
        """
        view, size = taken.view, self._engine.block_size
        positions = taken.inputs["positions"]
        tokens, found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for row, entry in enumerate(view.entries):
            first, end = view.query_start[row], view.query_start[row + 1]
            place = positions[first:end]
            kept = np.flatnonzero((place >= 0) & (place < final[row]))
            place = place[kept]
            table = np.array(entry.blocks, np.int64)
            column = np.minimum(place // size, len(table) - 1)
            tokens.append(first + kept)
            found.append(taken.blocks.rows_of(table[column]) * size + place % size)
        return np.concatenate(tokens), np.concatenate(found)

    def _checkpoints(self, taken: StepSnapshots, pool: np.ndarray, final: np.ndarray) -> np.ndarray:
        """[R, H, P, N]: states kept at the boundaries crossed in the step."""
        view = taken.view
        interval = self._engine.state_interval
        before = taken.inputs["computed"]
        result = np.zeros((view.shape.rows, *pool.shape[1:]), pool.dtype)
        for row, entry in enumerate(view.entries):
            boundary = int(final[row]) // interval * interval
            column = boundary // interval - 1
            is_kept = bool(view.is_decode[row]) or boundary == final[row] or self._is_all
            # A faulty engine's counts may be anything: no column stands before the first.
            if boundary > before[row] and is_kept and 0 <= column < len(entry.state_blocks):
                block = np.array(entry.state_blocks[column])
                result[row] = pool[taken.state_blocks.rows_of(block)]
        return result
