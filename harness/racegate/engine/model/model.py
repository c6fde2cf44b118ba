"""The model on a device: parameters, caches, state pools, and the launches of a forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from racegate.device.protocol import Device, DeviceBuffer, Stream, reads, updates, writes
from racegate.engine.model import layers
from racegate.engine.model.weights import make_weights
from racegate.engine.state.buffers import Inputs, Work
from racegate.engine.state.sizes import Sizes
from racegate.engine.state.view import BatchShape
from racegate.scenario.spec import DrafterKind, LayerKind, Scenario

_LAYER_PARAMETERS = {
    LayerKind.MAMBA2: ("in_proj", "conv", "dt_bias", "a_log", "skip", "out_proj"),
    LayerKind.GATED_DELTA: ("in_proj", "conv", "dt_bias", "a_log", "out_proj"),
    LayerKind.ATTENTION: ("qkv_proj", "out_proj"),
}


class Model:
    """Parameters and pools. States, windows and caches are named by layer index.

    weights: by name, of the shapes of `parameter_shapes`; drawn from the model seed by default
    """

    def __init__(
        self,
        scenario: Scenario,
        device: Device,
        stream: Stream,
        *,
        sizes: Sizes,
        weights: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self._scenario = scenario
        self._device = device
        self._stream = stream
        has_mtp = scenario.engine.drafter is DrafterKind.MTP
        drawn = make_weights(scenario.model, has_mtp=has_mtp) if weights is None else weights
        weights = dict(drawn)
        if has_mtp:
            # The product with a concatenation is a sum of two products: no concatenation on the
            # device.
            fc = weights.pop("draft.fc")
            weights["draft.fc.token"] = np.ascontiguousarray(fc[:, : sizes.hidden])
            weights["draft.fc.hidden"] = np.ascontiguousarray(fc[:, sizes.hidden :])
        self.parameters = {name: device.constant(name, value) for name, value in weights.items()}
        self.states: dict[int, DeviceBuffer] = {}
        self.windows: dict[int, DeviceBuffer] = {}
        self.caches: dict[int, DeviceBuffer] = {}
        for index, kind in enumerate(scenario.model.layers):
            self._make_pools(index, kind, sizes)

    def _make_pools(self, index: int, kind: LayerKind, sizes: Sizes) -> None:
        model, engine = self._scenario.model, self._scenario.engine
        inner = model.heads * model.head_size
        if kind is LayerKind.ATTENTION:
            shape: tuple[int, ...] = (engine.blocks, engine.block_size, 2 * inner)
            self.caches[index] = self._pool(f"kv.{index}", shape, sizes.quantity)
            return
        shape = (engine.state_blocks, model.heads, model.head_size, model.state_size)
        self.states[index] = self._pool(f"state.{index}", shape, sizes.state)
        keys = model.state_size if kind is LayerKind.MAMBA2 else model.heads * model.state_size
        shape = (engine.state_blocks, inner + 2 * keys, model.conv_width - 1 + sizes.drafts)
        self.windows[index] = self._pool(f"conv.{index}", shape, sizes.state)

    def _pool(self, name: str, shape: tuple[int, ...], dtype: Any) -> DeviceBuffer:
        return self._device.device_buffer(name, shape, dtype, stream=self._stream)

    def forward(
        self, shape: BatchShape, inputs: Inputs, work: Work, window_table: DeviceBuffer
    ) -> None:
        """Embedding and all layers; leaves the target hidden states in work.hidden."""
        self._device.launch(
            self._stream,
            layers.embed,
            "embed",
            step=shape.step,
            uses=(reads(inputs.input_ids.gpu, shape.tokens), writes(work.hidden, shape.tokens)),
            constants=(self.parameters["embed"],),
        )
        for index, kind in enumerate(self._scenario.model.layers):
            if kind is LayerKind.ATTENTION:
                self._attention(index, shape, inputs, work)
            else:
                self._recurrent(index, kind, shape, inputs, work, window_table)

    def _recurrent(
        self,
        index: int,
        kind: LayerKind,
        shape: BatchShape,
        inputs: Inputs,
        work: Work,
        window_table: DeviceBuffer,
    ) -> None:
        is_mamba2 = kind is LayerKind.MAMBA2
        self._device.launch(
            self._stream,
            layers.mamba2_layer if is_mamba2 else layers.gated_delta_layer,
            f"layer.{index}",
            step=shape.step,
            uses=(
                updates(work.hidden, shape.tokens),
                updates(self.states[index], mask=shape.state_blocks),
                updates(self.windows[index], mask=shape.state_blocks),
                reads(window_table, shape.rows),
                reads(inputs.query_start.gpu, shape.rows + 1),
                reads(work.accepted, shape.rows),
                reads(work.computed, shape.rows),
                reads(inputs.is_decode.gpu, shape.rows),
            ),
            constants=self._constants(index, kind),
        )

    def _attention(self, index: int, shape: BatchShape, inputs: Inputs, work: Work) -> None:
        self._device.launch(
            self._stream,
            layers.attention_layer,
            f"layer.{index}",
            step=shape.step,
            uses=(
                updates(work.hidden, shape.tokens),
                updates(self.caches[index], mask=shape.blocks),
                reads(inputs.block_table.gpu, shape.rows),
                reads(inputs.query_start.gpu, shape.rows + 1),
                reads(work.seq_lens, shape.rows),
                reads(work.positions, shape.tokens),
                reads(work.slot_mapping, shape.tokens),
            ),
            constants=self._constants(index, LayerKind.ATTENTION),
            heads=self._scenario.model.heads,
        )

    def _constants(self, index: int, kind: LayerKind) -> tuple[DeviceBuffer, ...]:
        return tuple(self.parameters[f"layer.{index}.{name}"] for name in _LAYER_PARAMETERS[kind])

    def verify(
        self,
        shape: BatchShape,
        inputs: Inputs,
        work: Work,
        sampled: DeviceBuffer,
        *,
        mask: DeviceBuffer | None,
        owners: tuple[tuple[str, int], ...],
    ) -> None:
        """Logits and verification: sampled [R, 1 + K]. mask: of the tokens that may be drawn."""
        masks = () if mask is None else (reads(mask, shape.rows),)
        self._device.launch(
            self._stream,
            layers.verify if mask is None else layers.verify_masked,
            "sample",
            step=shape.step,
            uses=(
                reads(work.hidden, shape.tokens),
                *masks,
                reads(inputs.logit_index.gpu, shape.rows),
                reads(inputs.input_ids.gpu, shape.tokens),
                reads(work.positions, shape.tokens),
                reads(inputs.temperature.gpu, shape.rows),
                reads(inputs.seed.gpu, shape.rows),
                writes(sampled, shape.rows, own=owners),
            ),
            constants=(self.parameters["lm_head"],),
        )
