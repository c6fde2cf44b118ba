"""The forward pass of a step: launch by launch, or with replays of captured graphs
(docs/mechanism.md#graphs).

What is replayed has the same buffers, views and scalars in every step, and only contents change.
Uniform decode batches can replay all of the pass. Every batch can replay what lies between
attention layers, whose footprint alone depends on lengths. Everything behind the pass works on the
live rows.
"""

from __future__ import annotations

from racegate.device.protocol import Graph
from racegate.engine.model.bound import BoundBuffers
from racegate.engine.model.model import Model
from racegate.engine.model.padding import BLOCKS, STATE_BLOCKS, STATE_WRITTEN, WRITTEN, Padding
from racegate.engine.model.parts import ModelParts
from racegate.engine.model.stretches import Stretch, pieces_of, whole
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import BatchShape, StepView
from racegate.scenario.settings import EngineSpec, GraphMode


def captured_sizes(engine: EngineSpec) -> tuple[int, ...]:
    """Batch sizes, rising, for which there are graphs: no batch and no token buffer is larger."""
    if engine.graph_mode is GraphMode.EAGER:
        return ()
    width = 1 + engine.draft_len_max
    most = min(engine.rows_max, engine.tokens_per_step_max // width)
    return tuple(size for size in engine.capture_rows if size <= most)


class ForwardPass:
    """Runs the model's forward pass on what a step has prepared."""

    def __init__(
        self, setup: Setup, *, model: Model, bound: BoundBuffers, parts: ModelParts
    ) -> None:
        engine, layers = setup.scenario.engine, setup.scenario.model.layers
        self._setup = setup
        self._model = model
        self._bound = bound
        self._parts = parts
        self._is_whole = engine.graph_mode is not GraphMode.PIECEWISE
        self._width = 1 + setup.sizes.drafts
        self._stretch = whole(layers)
        self._pieces = pieces_of(layers, engine.graph_mode)
        self._sizes = captured_sizes(engine)
        self._graphs: dict[tuple[str, int], Graph] = {}
        self._padding: Padding | None = None
        if self._sizes:
            make = parts.padding if self._is_whole else parts.mixed_padding
            self._padding = make(setup, bound, sizes=self._sizes)
            self._padding.warm_up()
            self._capture_all(self._padding.bound)

    def _capture_all(self, bound: BoundBuffers) -> None:
        for size in self._sizes:
            for stretch, name in self._pieces:
                if name is not None:
                    self._graphs[name, size] = self._capture(name, size, stretch, bound)

    def _capture(self, name: str, size: int, stretch: Stretch, bound: BoundBuffers) -> Graph:
        shape = BatchShape(
            step=-1,
            rows=size,
            tokens=size * self._width,
            blocks=BLOCKS,
            state_blocks=STATE_BLOCKS,
            written=WRITTEN,
            state_written=STATE_WRITTEN,
        )
        graph: Graph
        with self._setup.device.capture(self._setup.compute, f"{name}.{size}") as graph:
            self._model.forward(stretch, shape, bound)
        return graph

    def run(self, view: StepView) -> None:
        """Leaves the hidden states of the step's tokens in work.hidden."""
        size = self._size_for(view)
        if self._padding is None or size is None:
            self._model.forward(self._stretch, view.shape, self._bound)
            return
        self._padding.refresh(view, size)
        masks = self._padding.masks(view.shape)
        for stretch, name in self._pieces:
            if name is None:
                self._model.forward(stretch, view.shape, self._bound)
            else:
                self._setup.device.replay(
                    self._setup.compute,
                    self._graphs[name, size],
                    step=view.shape.step,
                    masks=masks,
                )
        self._setup.counters.add("graph_replays")  # of the pass, in however many pieces
        self._setup.counters.add("padded_rows", max(size - view.shape.rows, 0))

    def _size_for(self, view: StepView) -> int | None:
        """The rows of the smallest graphs that hold the batch; None if none may."""
        if self._is_whole and not self._parts.dispatch(view, width=self._width):
            return None
        fits = self._parts.fits
        return next((n for n in self._sizes if fits(view.shape, n, width=self._width)), None)
