"""Peers: what a model asks of the other ranks that it is spread over. A whole model has none."""

from __future__ import annotations

from collections.abc import Mapping

from racegate.device.protocol import DeviceBuffer, Use, reads, updates
from racegate.engine.state.buffers import Inputs, WorkBuffers
from racegate.engine.state.view import BatchShape, StepView
from racegate.scenario.settings import ModelSpec


class Peers:
    """The ranks of a model, as one of them sees the others; here the whole model is on one rank."""

    def shard(self, spec: ModelSpec) -> ModelSpec:
        """The sizes of what this rank has of a model."""
        return spec

    def residual(self, hidden: DeviceBuffer, tokens: int) -> dict[str, Use]:
        """What a layer reads, and where what it adds goes. hidden: [T, D]"""
        return {"hidden": updates(hidden, tokens)}

    def add(self, name: str, hidden: DeviceBuffer, shape: BatchShape) -> None:
        """All ranks' parts of what a layer adds become part of hidden, [T, D]. name: of it"""

    def target(
        self,
        view: StepView,
        inputs: Inputs,
        work: WorkBuffers,
        head: Mapping[str, DeviceBuffer],
    ) -> tuple[dict[str, Use], Mapping[str, DeviceBuffer]]:
        """What tokens are drawn from: what a kernel uses, and its parameters. head: the model's"""
        return {"hidden": reads(work.hidden, view.shape.tokens)}, head
