"""The forward pass of a step: launch by launch, or as the replay of a captured graph
(docs/mechanism.md#graphs).

Uniform decode batches replay: every launch of the pass has then the same buffers, views and
scalars in every step, and only contents change. Everything behind the pass works on the live rows.
"""

from __future__ import annotations

from racegate.device.protocol import Graph
from racegate.engine.model.bound import Bound
from racegate.engine.model.model import Model
from racegate.engine.model.padding import BLOCKS, STATE_BLOCKS, Padding
from racegate.engine.model.parts import ModelParts
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import BatchShape, StepView
from racegate.scenario.spec import EngineSpec, GraphMode


def captured_sizes(engine: EngineSpec) -> tuple[int, ...]:
    """Batch sizes, rising, for which there is a graph: no batch and no token buffer is larger."""
    if engine.graph_mode is GraphMode.EAGER:
        return ()
    width = 1 + engine.draft_len_max
    most = min(engine.rows_max, engine.tokens_per_step_max // width)
    return tuple(size for size in engine.capture_rows if size <= most)


class ForwardPass:
    """Runs the model's forward pass on what a step has prepared."""

    def __init__(self, setup: Setup, *, model: Model, bound: Bound, parts: ModelParts) -> None:
        self._setup = setup
        self._model = model
        self._bound = bound
        self._dispatch = parts.dispatch
        self._width = 1 + setup.sizes.drafts
        self._graphs: dict[int, Graph] = {}
        self._padding: Padding | None = None
        sizes = captured_sizes(setup.scenario.engine)
        if sizes:
            self._padding = parts.padding(setup, bound, sizes=sizes)
            self._padding.warm_up()
            self._graphs = {size: self._capture(size, self._padding.bound) for size in sizes}

    def _capture(self, size: int, bound: Bound) -> Graph:
        shape = BatchShape(
            step=-1,
            rows=size,
            tokens=size * self._width,
            blocks=BLOCKS,
            state_blocks=STATE_BLOCKS,
        )
        graph: Graph
        with self._setup.device.capture(self._setup.compute, f"decode.{size}") as graph:
            self._model.forward(shape, bound)
        return graph

    def run(self, view: StepView) -> None:
        """Leaves the hidden states of the step's tokens in work.hidden."""
        size = self._size_for(view)
        if self._padding is None or size is None:
            self._model.forward(view.shape, self._bound)
            return
        self._padding.refresh(view, size)
        self._setup.device.replay(
            self._setup.compute,
            self._graphs[size],
            step=view.shape.step,
            masks=self._padding.masks(view.shape),
        )
        self._setup.counters.add("graph_replays")
        self._setup.counters.add("padded_rows", size - view.shape.rows)

    def _size_for(self, view: StepView) -> int | None:
        """The rows of the smallest graph that holds the batch; None if none may."""
        if not self._dispatch(view, width=self._width):
            return None
        return next((size for size in self._graphs if size >= view.shape.rows), None)
