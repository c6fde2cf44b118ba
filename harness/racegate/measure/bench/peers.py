"""Released kernels of other projects that do the same updates of states, beside those of this one.

They come from the packages that are installed; nothing of theirs is part of this project.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from racegate.measure.bench.kernels import UpdateInputs, UpdateSizes
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array

FLOAT32_BYTES = 4


class Update(StrEnum):
    """The state updates, by the names of their kernels."""

    MAMBA2 = "mamba2_update"
    GATED_DELTA = "gated_delta_update"
    CONVOLUTION = "conv_update"


class WindowLayout(StrEnum):
    """VLLM_SSM_CONV_STATE_LAYOUT: a channel's inputs side by side, as here, or channels."""

    DS = "ds"
    SD = "sd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An update with its arguments, by the number of the table.

    launch: returns what the kernel wrote, the output [T, H, P] first
    states: [R, 1 + K, H, P, N] what a launch left behind
    """

    launch: Callable[[int], tuple[Array, ...]]
    states: Callable[[int], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A kernel that does an update.

    drafts: most drafts of a row that it knows; None: any
    item_bytes: sizes of the numbers that it takes
    """

    name: str
    release: str
    update: Update
    prepare: Callable[[UpdateInputs], Prepared]
    drafts: int | None = None
    item_bytes: tuple[int, ...] = (4, 2)

    def serves(self, sizes: UpdateSizes) -> bool:
        """Whether it does the same work."""
        return sizes.item_bytes in self.item_bytes and sizes.drafts <= (
            sizes.drafts if self.drafts is None else self.drafts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A project whose kernels are compared.

    package: as it is imported; distribution: as it is installed; install: the command
    """

    name: str
    package: str
    distribution: str
    install: str
    load: Callable[[str], tuple[Contender, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingPeer:
    """A peer that cannot be compared, and why."""

    name: str
    reason: str


def find_peers(
    peers: tuple[Peer, ...] | None = None,
) -> tuple[tuple[Contender, ...], tuple[MissingPeer, ...]]:
    """Kernels of the peers that are installed, and the peers that are not."""
    contenders: list[Contender] = []
    missing: list[MissingPeer] = []
    for peer in PEERS if peers is None else peers:
        try:
            contenders += peer.load(version(peer.distribution))
        except PackageNotFoundError:
            reason = f"{peer.distribution} is not installed: {peer.install}"
            missing.append(MissingPeer(name=peer.name, reason=reason))
        except (ImportError, AttributeError, OSError) as error:
            reason = f"{peer.package} does not give its kernels: {type(error).__name__}: {error}"
            missing.append(MissingPeer(name=peer.name, reason=reason))
    return tuple(contenders), tuple(missing)


def own_contender(kernels: Backend, update: Update) -> Contender:
    """The kernel of this project."""

    def prepare(inputs: UpdateInputs) -> Prepared:
        kernel = getattr(kernels, update.value)
        return Prepared(
            launch=lambda table: (kernel(*inputs.arguments(table)),),
            states=partial(_pool_states, inputs),
        )

    return Contender(name="racegate", release="this", update=update, prepare=prepare)


def _pool_states(inputs: UpdateInputs, table: int) -> Array:
    return inputs.state[inputs.tables[table].long()]


def _vllm(release: str) -> tuple[Contender, ...]:
    """What its model runner calls with drafts and without."""
    scan = import_module("vllm.model_executor.layers.mamba.ops.mamba_ssm")
    rule = _first_module(
        "vllm.third_party.flash_linear_attention.ops", "vllm.model_executor.layers.fla.ops"
    )
    causal = import_module("vllm.model_executor.layers.mamba.ops.causal_conv1d")
    gated, packed = (
        rule.fused_sigmoid_gating_delta_rule_update,
        rule.fused_recurrent_gated_delta_rule_packed_decode,
    )
    made = partial(Contender, release=f"vllm {release}")
    return (
        made(
            name="vllm",
            update=Update.MAMBA2,
            prepare=partial(_vllm_mamba2, scan.selective_state_update),
        ),
        made(name="vllm", update=Update.GATED_DELTA, prepare=partial(_vllm_gated_delta, gated)),
        made(
            name="vllm_packed",
            update=Update.GATED_DELTA,
            prepare=partial(_vllm_packed, packed),
            drafts=0,
        ),
        *(
            made(
                name=f"vllm_{layout.value}",
                update=Update.CONVOLUTION,
                prepare=partial(_vllm_convolution, causal.causal_conv1d_update, layout),
            )
            for layout in WindowLayout
        ),
    )


def _mamba2_arguments(inputs: UpdateInputs) -> tuple[Array, ...]:
    """x, dt, A, B, C, D and dt's bias as mamba-ssm's signature has them: scalars of a head are
    vectors of stride 0.
    """
    x, b, c, dt = inputs.vectors
    dt_bias, a_log, skip = inputs.parameters
    tokens, heads, head_size = x.shape
    state_size = inputs.state.shape[3]
    return (
        x,
        dt[:, :, None].expand(tokens, heads, head_size),
        -a_log.float().exp()[:, None, None].expand(heads, head_size, state_size),
        b.reshape(tokens, -1, state_size),
        c.reshape(tokens, -1, state_size),
        skip[:, None].expand(heads, head_size),
        dt_bias[:, None].expand(heads, head_size),
    )


def _vllm_mamba2(update: Callable[..., Array], inputs: UpdateInputs) -> Prepared:
    *arguments, bias = _mamba2_arguments(inputs)
    starts, accepted = inputs.counts[:2]
    drafted = inputs.tables[0].shape[1] > 1
    windows = {"num_accepted_tokens": accepted, "cu_seqlens": starts} if drafted else {}

    def launch(table: int) -> tuple[Array, ...]:
        out = arguments[0].new_empty(arguments[0].shape)
        update(
            inputs.state,
            *arguments,
            dt_bias=bias,
            dt_softplus=True,
            state_batch_indices=inputs.tables[table],
            out=out,
            **windows,
        )
        return (out,)

    return Prepared(launch=launch, states=partial(_pool_states, inputs))


def _vllm_gated_delta(update: Callable[..., Array], inputs: UpdateInputs) -> Prepared:
    q, k, v, b, g = inputs.vectors
    dt_bias, a_log = inputs.parameters
    starts, accepted = inputs.counts[:2]
    drafted = inputs.tables[0].shape[1] > 1

    def launch(table: int) -> tuple[Array, ...]:
        blocks = inputs.tables[table]
        out, _ = update(
            A_log=a_log,
            a=g,
            b=b,
            dt_bias=dt_bias,
            q=q[None],
            k=k[None],
            v=v[None],
            initial_state=inputs.state,
            inplace_final_state=True,
            cu_seqlens=starts,
            ssm_state_indices=blocks if drafted else blocks[:, 0],
            num_accepted_tokens=accepted if drafted else None,
            use_qk_l2norm_in_kernel=True,
        )
        return (out.reshape(v.shape),)

    return Prepared(launch=launch, states=partial(_pool_states, inputs))


def _vllm_packed(update: Callable[..., Array], inputs: UpdateInputs) -> Prepared:
    import torch

    q, k, v, b, g = inputs.vectors
    dt_bias, a_log = inputs.parameters
    mixed = torch.cat([part.flatten(1) for part in (q, k, v)], dim=1)

    def launch(table: int) -> tuple[Array, ...]:
        out = v.new_empty(len(v), 1, *v.shape[1:])
        update(
            mixed,
            g,
            b,
            a_log,
            dt_bias,
            k.shape[-1] ** -0.5,
            inputs.state,
            out,
            inputs.tables[table][:, 0],
            use_qk_l2norm_in_kernel=True,
        )
        return (out[:, 0],)

    return Prepared(launch=launch, states=partial(_pool_states, inputs))


def _vllm_convolution(
    update: Callable[..., Array], layout: WindowLayout, inputs: UpdateInputs
) -> Prepared:
    windows, (weight,) = inputs.state, inputs.parameters
    if layout is WindowLayout.SD:
        windows = windows.transpose(1, 2).contiguous().transpose(1, 2)
    starts, accepted = inputs.counts[:2]
    longest = len(inputs.streamed[0]) // (len(starts) - 1)
    many = {"num_accepted_tokens": accepted, "query_start_loc": starts, "max_query_len": longest}
    drafted = many if longest > 1 else {}

    def launch(table: int) -> tuple[Array, ...]:
        x, blocks = inputs.streamed[table], inputs.tables[table]
        named = {"conv_state_indices": blocks, "out": x.new_empty(x.shape), **drafted}
        return (update(x, windows, weight, None, "silu", **named),)

    return Prepared(launch=launch, states=lambda table: windows[inputs.tables[table].long()])


def _fla(release: str) -> tuple[Contender, ...]:
    """One state per row, in a tensor of its own, float32 only."""
    rule = import_module("fla.ops.gated_delta_rule")
    return (
        Contender(
            name="fla",
            release=f"flash-linear-attention {release}",
            update=Update.GATED_DELTA,
            prepare=partial(_fla_gated_delta, rule.fused_recurrent_gated_delta_rule),
            drafts=0,
            item_bytes=(FLOAT32_BYTES,),
        ),
    )


def _fla_gated_delta(update: Callable[..., Array], inputs: UpdateInputs) -> Prepared:
    q, k, v, b, g = (vector[:, None] for vector in inputs.vectors)
    dt_bias, a_log = inputs.parameters
    before = [inputs.state[table[:, 0].long()] for table in inputs.tables]
    after: dict[int, Array] = {}

    def launch(table: int) -> tuple[Array, ...]:
        out, after[table] = update(
            q,
            k,
            v,
            g=g,
            beta=b,
            initial_state=before[table],
            output_final_state=True,
            use_qk_l2norm_in_kernel=True,
            use_gate_in_kernel=True,
            A_log=a_log,
            dt_bias=dt_bias,
            use_beta_sigmoid_in_kernel=True,
            state_v_first=True,
        )
        return out[:, 0], after[table]

    return Prepared(launch=launch, states=lambda table: after[table][:, None])


def _mamba_ssm(release: str) -> tuple[Contender, ...]:
    """One state per row. Its package imports compiled kernels that this one does not need."""
    with _without_init("mamba_ssm"):
        scan = import_module("mamba_ssm.ops.triton.selective_state_update")
    return (
        Contender(
            name="mamba_ssm",
            release=f"mamba-ssm {release}",
            update=Update.MAMBA2,
            prepare=partial(_mamba_ssm_mamba2, scan.selective_state_update),
            drafts=0,
        ),
    )


def _mamba_ssm_mamba2(update: Callable[..., Array], inputs: UpdateInputs) -> Prepared:
    *arguments, bias = _mamba2_arguments(inputs)

    def launch(table: int) -> tuple[Array, ...]:
        blocks = inputs.tables[table][:, 0]
        named = {"dt_bias": bias, "dt_softplus": True, "state_batch_indices": blocks}
        return (update(inputs.state, *arguments, **named),)

    return Prepared(launch=launch, states=partial(_pool_states, inputs))


def _first_module(*names: str) -> ModuleType:
    """The first of several places that is there."""
    *others, last = names
    for name in others:
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    return import_module(last)


@contextmanager
def _without_init(package: str) -> Iterator[None]:
    """Modules of a package can be imported, and its `__init__` does not run."""
    spec = PathFinder.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"No module named {package!r}")
    known = package in sys.modules
    if not known:
        bare = sys.modules[package] = ModuleType(package)
        bare.__path__ = list(spec.submodule_search_locations)
    try:
        yield
    finally:
        if not known:
            del sys.modules[package]


PEERS = (
    Peer(
        name="vllm",
        package="vllm",
        distribution="vllm",
        install="pip install vllm (it brings a torch of its own)",
        load=_vllm,
    ),
    Peer(
        name="fla",
        package="fla",
        distribution="fla-core",
        install="pip install 'racegate[peers]'",
        load=_fla,
    ),
    Peer(
        name="mamba_ssm",
        package="mamba_ssm",
        distribution="mamba-ssm",
        install="MAMBA_SKIP_CUDA_BUILD=TRUE pip install --no-build-isolation --no-deps mamba-ssm",
        load=_mamba_ssm,
    ),
)
