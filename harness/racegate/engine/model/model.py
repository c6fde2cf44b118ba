"""The model on a device: parameters, caches, state pools, and the launches of a forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import DTypeLike

from racegate.device.protocol import DeviceBuffer, Use, reads, updates, writes
from racegate.engine.model import head, layers
from racegate.engine.model.bound import BoundBuffers
from racegate.engine.model.cascade import CommonPrefix
from racegate.engine.model.peers import Peers
from racegate.engine.model.stretches import EMBEDDING, Stretch
from racegate.engine.model.weights import make_weights
from racegate.engine.state.buffers import WorkBuffers
from racegate.engine.state.kernels import Kernel
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import BatchShape, StepView
from racegate.scenario.settings import CacheMode, DrafterKind, LayerKind, ModelSpec

# The launch of each kind, and the names of its parameters.
_LAYERS: dict[LayerKind, tuple[Kernel, tuple[str, ...]]] = {
    LayerKind.MAMBA2: (layers.mamba2_layer, layers.Mamba2Weights._fields),
    LayerKind.GATED_DELTA: (layers.gated_delta_layer, layers.GatedDeltaWeights._fields),
    LayerKind.ATTENTION: (layers.attention_layer, layers.AttentionWeights._fields),
}

# Those of cache mode all.
_BY_TOKEN: dict[LayerKind, Kernel] = {
    LayerKind.MAMBA2: layers.mamba2_layer_by_token,
    LayerKind.GATED_DELTA: layers.gated_delta_layer_by_token,
}

# By what there is: weights of drafts, grammar masks.
_VERIFY: dict[tuple[bool, bool], Kernel] = {
    (False, False): head.verify,
    (False, True): head.verify_masked,
    (True, False): head.verify_drawn,
    (True, True): head.verify_drawn_masked,
}


class Model:
    """Parameters and pools. States, windows and caches are named by layer index.

    prefix: what attention treats by itself; peers: the other ranks of a model that is spread
    weights: by name, of the shapes of `parameter_shapes`; drawn from the model seed by default
    """

    def __init__(
        self,
        setup: Setup,
        prefix: CommonPrefix,
        *,
        peers: Peers,
        weights: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self._setup = setup
        self._prefix = prefix
        self._peers = peers
        spec, device = setup.scenario.model, setup.device
        self._spec = peers.shard(spec)
        has_mtp = setup.scenario.engine.drafter is DrafterKind.MTP
        drawn = make_weights(spec, has_mtp=has_mtp) if weights is None else weights
        weights = dict(drawn)
        if has_mtp:
            # The product with a concatenation is a sum of two products: no concatenation on the
            # device.
            fc, hidden = weights.pop("draft.fc"), setup.sizes.hidden
            weights["draft.fc.token"] = np.ascontiguousarray(fc[:, :hidden])
            weights["draft.fc.hidden"] = np.ascontiguousarray(fc[:, hidden:])
        # In cache mode all every token may have a block of its own, and nothing is rolled back.
        self._by_token = None
        if setup.scenario.engine.cache_mode is CacheMode.ALL:
            rows, window = setup.sizes.rows, setup.sizes.window
            last_column = device.constant("last_column", np.full(rows, window, np.int32))
            self._by_token = last_column, device.constant("all_decode", np.ones(rows, np.int32))
        self.parameters = {name: device.constant(name, value) for name, value in weights.items()}
        self.states: dict[int, DeviceBuffer] = {}
        self.conv_windows: dict[int, DeviceBuffer] = {}
        self.caches: dict[int, DeviceBuffer] = {}
        self._weights: list[dict[str, DeviceBuffer]] = []
        for index, kind in enumerate(spec.layers):
            self._make_pools(index, kind)
            self._weights.append(self._named(f"layer.{index}.", _LAYERS[kind][1]))

    def _named(self, prefix: str, names: Iterable[str]) -> dict[str, DeviceBuffer]:
        """Those parameters of the names that there are."""
        found = {name: self.parameters.get(prefix + name) for name in names}
        return {name: buffer for name, buffer in found.items() if buffer is not None}

    def _make_pools(self, index: int, kind: LayerKind) -> None:
        sizes = self._setup.sizes
        model, engine = self._spec, self._setup.scenario.engine
        inner = model.heads * model.head_size
        if kind is LayerKind.ATTENTION:
            entry = 2 * model.kv_head_count * model.head_size
            shape: tuple[int, ...] = (engine.blocks, engine.block_size, entry)
            self.caches[index] = self._pool(f"kv.{index}", shape, sizes.quantity)
            return
        shape = (engine.state_blocks, model.heads, model.head_size, model.state_size)
        self.states[index] = self._pool(f"state.{index}", shape, sizes.state)
        shared = model.groups if kind is LayerKind.MAMBA2 else model.key_head_count
        channels = inner + 2 * shared * model.state_size
        ahead = sizes.drafts if self._by_token is None else 0
        shape = (engine.state_blocks, channels, model.conv_width - 1 + ahead)
        self.conv_windows[index] = self._pool(f"conv.{index}", shape, sizes.state)

    def _pool(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> DeviceBuffer:
        return self._setup.device.device_buffer(name, shape, dtype, stream=self._setup.compute)

    def forward(self, stretch: Stretch, shape: BatchShape, bound: BoundBuffers) -> None:
        """A stretch of the forward pass; the last leaves the target's hidden states in
        work.hidden.
        """
        for stage in stretch:
            self._stage(stage, shape, bound)

    def _stage(self, stage: int, shape: BatchShape, bound: BoundBuffers) -> None:
        if stage == EMBEDDING:
            self._embed(shape, bound)
            return
        kind = self._setup.scenario.model.layers[stage]
        if kind is LayerKind.ATTENTION:
            self._attention(stage, shape, bound)
        else:
            self._recurrent(stage, kind, shape, bound)
        if self._setup.scenario.model.mlp_size:
            self._mlp(stage, shape, bound)

    def _embed(self, shape: BatchShape, bound: BoundBuffers) -> None:
        self._setup.kernels.launch_kernel(
            layers.embed,
            {
                "input_ids": reads(bound.inputs.input_ids.gpu, shape.tokens),
                "hidden": writes(bound.work.hidden, shape.tokens),
            },
            name="embed",
            step=shape.step,
            constants={"table": self.parameters["embed"]},
        )

    def _mlp(self, index: int, shape: BatchShape, bound: BoundBuffers) -> None:
        self._setup.kernels.launch_kernel(
            layers.mlp_layer,
            self._peers.residual(bound.work.hidden, shape.tokens),
            name=f"mlp.{index}",
            step=shape.step,
            constants=self._named(f"layer.{index}.", layers.MlpWeights._fields),
        )
        self._peers.add(f"mlp.{index}", bound.work.hidden, shape)

    def _recurrent(
        self, index: int, kind: LayerKind, shape: BatchShape, bound: BoundBuffers
    ) -> None:
        layer, _ = _LAYERS[kind]
        inputs, work, rows = bound.inputs, bound.work, shape.rows
        accepted, is_decode = work.accepted, inputs.is_decode.gpu
        if self._by_token is not None:
            layer, (accepted, is_decode) = _BY_TOKEN[kind], self._by_token
        self._setup.kernels.launch_kernel(
            layer,
            {
                **self._peers.residual(work.hidden, shape.tokens),
                "state": updates(
                    self.states[index], mask=shape.state_blocks, written=shape.state_written
                ),
                "window": updates(
                    self.conv_windows[index], mask=shape.state_blocks, written=shape.state_written
                ),
                "state_table": reads(bound.window_table, rows),
                "query_start": reads(inputs.query_start.gpu, rows + 1),
                "accepted": reads(accepted, rows),
                "computed": reads(work.computed, rows),
                "is_decode": reads(is_decode, rows),
            },
            name=f"layer.{index}",
            step=shape.step,
            constants=self._weights[index],
        )
        self._peers.add(f"layer.{index}", work.hidden, shape)

    def _attention(self, index: int, shape: BatchShape, bound: BoundBuffers) -> None:
        inputs, work, rows = bound.inputs, bound.work, shape.rows
        spec = self._spec
        self._setup.kernels.launch_kernel(
            layers.attention_layer,
            {
                **self._peers.residual(work.hidden, shape.tokens),
                "cache": updates(self.caches[index], mask=shape.blocks, written=shape.written),
                "block_table": reads(inputs.block_table.gpu, rows),
                "query_start": reads(inputs.query_start.gpu, rows + 1),
                "seq_lens": reads(work.seq_lens, rows),
                "positions": reads(work.positions, shape.tokens),
                "slot_mapping": reads(work.slot_mapping, shape.tokens),
                **mrope_uses(spec, work, shape.tokens),
                **self._prefix.uses(inputs),
            },
            name=f"layer.{index}",
            step=shape.step,
            constants=self._weights[index],
            shape=layers.attention_shape(spec),
        )
        self._peers.add(f"layer.{index}", work.hidden, shape)

    def verify(
        self,
        view: StepView,
        sampled: DeviceBuffer,
        *,
        grammar_mask: DeviceBuffer | None,
        weighed: Mapping[str, Use],
    ) -> None:
        """Logits and verification. sampled: [R, 1 + K] int32, written

        grammar_mask: [R, 1 + K, ceil(V / 32)] int32, of the tokens that may be drawn
        weighed: what drafts were drawn from, by name, if they were
        """
        inputs, work = self._setup.inputs, self._setup.work
        rows, tokens = view.shape.rows, view.shape.tokens
        parameters = self._named("", head.HeadWeights._fields)
        uses, constants = self._peers.target(view, inputs, work, parameters)
        if grammar_mask is not None:
            uses["grammar_mask"] = reads(grammar_mask, rows)
        uses |= {
            "logit_index": reads(inputs.logit_index.gpu, rows),
            "input_ids": reads(inputs.input_ids.gpu, tokens),
            "positions": reads(work.positions, tokens),
            "temperature": reads(inputs.temperature.gpu, rows),
            "seed": reads(inputs.seed.gpu, rows),
            **weighed,
            "sampled": writes(sampled, rows, own=view.owners),
        }
        self._setup.kernels.launch_kernel(
            _VERIFY[bool(weighed), grammar_mask is not None],
            uses,
            name="sample",
            step=view.shape.step,
            constants=constants,
        )


def mrope_uses(spec: ModelSpec, work: WorkBuffers, tokens: int) -> dict[str, Use]:
    """What an attention layer reads beside the positions, if it turns by more than those."""
    if not spec.has_mrope:
        return {}
    return {"mrope_positions": reads(work.mrope_positions, tokens)}
