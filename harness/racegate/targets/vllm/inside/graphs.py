"""Captured graphs: how an engine is asked for them, and what is observed when one is replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any

from racegate.targets.common.inside.session import Tensor
from racegate.targets.vllm.inside.hollow import Hollow
from racegate.targets.vllm.inside.watch import RunnerWatch
from racegate.targets.vllm.wire import CaptureMode

SIZES = (1, 2, 4, 8, 16, 32)  # tokens of a batch that is captured; others are padded to these
_FEW = (1, 3)  # rows
_FUSED = "supports_decode_metadata_update"  # by the drafter
_WHOLE = "FULL_DECODE_ONLY"
_MODES = {
    CaptureMode.FULL: _WHOLE,
    CaptureMode.FEW: _WHOLE,
    CaptureMode.PIECEWISE: "PIECEWISE",
}
_MODEL, _DRAFTER = "inputs of the model", "inputs of the drafter"


def asked_graphs(graphs: CaptureMode, drafts: int) -> dict[str, Any]:
    """Of the engine's settings for compilation: nothing is compiled, whatever is captured. drafts:
    that a row has
    """
    if graphs is CaptureMode.NONE:
        return {}
    is_few = graphs is CaptureMode.FEW
    sizes = [rows * (drafts + 1) for rows in _FEW] if is_few else list(SIZES)
    return {
        "mode": 0,
        "cudagraph_mode": _MODES[graphs],
        "cudagraph_capture_sizes": sizes,
        "max_cudagraph_capture_size": max(sizes),
    }


def watch_replays(watch: RunnerWatch, runner: Any, hollow: Hollow) -> None:
    """Counts steps whose forward pass is a graph, and observes what the graph is given."""
    manager = getattr(runner, "cudagraph_manager", None)
    if manager is None:
        _watch_first(watch, runner, hollow)
    else:
        _watch_second(watch, runner, manager, hollow)


def _watch_first(watch: RunnerWatch, runner: Any, hollow: Hollow) -> None:
    """Its model is a wrapper that replays or runs; both are called alike."""
    plain = runner._model_forward

    @wraps(plain)
    def forward(*args: Any, **kwargs: Any) -> Any:
        ran = hollow.forwards
        made = plain(*args, **kwargs)
        if hollow.forwards == ran:
            given = dict(zip(("input_ids", "positions"), args, strict=False)) | kwargs
            tables = runner.input_batch.block_table.block_tables
            _read_by_layers(
                watch,
                [_on_device(each.slot_mapping)[: len(given["input_ids"])] for each in tables],
                seq_lens=_on_device(runner.seq_lens),
                query_start=_on_device(runner.query_start_loc),
                **_padding_of(runner, len(given["input_ids"])),
            )
            _noted(watch, hollow, given["input_ids"], given["positions"])
        return made

    runner._model_forward = forward
    _watch_pieces(getattr(getattr(runner, "drafter", None), "model", None), hollow)


def _watch_pieces(drafter: Any, hollow: Hollow) -> None:
    """What each pass of the first runner's drafter is given that replays graphs of pieces."""
    plain = getattr(drafter, "_replay", None)
    if plain is None:
        return

    @wraps(plain)
    def replay(entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        made = plain(entry, args, kwargs)
        given = (kwargs[name] for name in ("input_ids", "positions", "hidden_states"))
        hollow.observe(_DRAFTER, *given)
        return made

    drafter._replay = replay


def _watch_second(watch: RunnerWatch, runner: Any, manager: Any, hollow: Hollow) -> None:
    """Its graphs read the buffers that every step's inputs are written to."""

    def replayed(plain: Callable[..., Any], size_of: Callable[..., int]) -> Callable[..., Any]:
        @wraps(plain)
        def run(*args: Any, **kwargs: Any) -> Any:
            ran = hollow.forwards
            made = plain(*args, **kwargs)
            if hollow.forwards == ran:
                size, buffers = size_of(*args), runner.input_buffers
                _noted(watch, hollow, buffers.input_ids[:size], buffers.positions[:size])
            return made

        return run

    speculator = getattr(runner, "speculator", None)
    names = ["prefill_cudagraph_manager"]
    if not getattr(speculator, _FUSED, True):
        names.append("decode_cudagraph_manager")
    for drafts in filter(None, (getattr(speculator, name, None) for name in names)):
        drafts.run_fullgraph = _drafting(watch, speculator, drafts.run_fullgraph, hollow)
    manager.run_fullgraph = replayed(manager.run_fullgraph, partial(_whole, watch, runner))
    manager.run_pw_graph = replayed(
        manager.run_pw_graph, lambda model, given: len(given["input_ids"])
    )


def _whole(watch: RunnerWatch, runner: Any, desc: Any) -> int:
    """How many tokens a full graph takes, those that pad it among them."""
    buffers, size, rows = runner.input_buffers, desc.num_tokens, desc.num_reqs or 0
    tables = enumerate(getattr(runner.block_tables, "input_block_tables", ()))
    _read_by_layers(
        watch,
        getattr(runner.block_tables, "slot_mappings", buffers.input_ids[:0])[..., :size],
        seq_lens=buffers.seq_lens[:rows],
        query_start=buffers.query_start_loc[: rows + 1],
        is_padding=getattr(buffers, "is_padding", buffers.input_ids[:0])[:size],
        **{f"blocks {group}": table[:rows] for group, table in tables},
    )
    return int(size)


def _read_by_layers(watch: RunnerWatch, slots: Iterable[Tensor], **others: Tensor) -> None:
    """What pads a graph is observed too: attention writes where its slots say, and runs as long as
    its rows. slots: of each group of layers
    """
    by_group = {f"slots {group}": each for group, each in enumerate(slots)}
    watch.inner_on_device("padded graph", by_group | others)


def _padding_of(runner: Any, count: int) -> dict[str, Tensor]:
    """Which tokens pad a batch, in releases that say so. count: of tokens, with these"""
    marked = getattr(runner, "is_padding", None)
    return {} if marked is None else {"is_padding": marked[:count]}


def _on_device(buffer: Any) -> Tensor:
    return getattr(buffer, "gpu", buffer)


def _drafting(
    watch: RunnerWatch, speculator: Any, plain: Callable[..., Any], hollow: Hollow
) -> Callable[..., Any]:
    """The drafter's first pass, and others that are graphs of their own; the graph of all others
    changes what it is given. Rows that pad it have to be in nobody's place.
    """

    @wraps(plain)
    def run(desc: Any) -> Any:
        buffers, size = speculator.input_buffers, desc.num_tokens
        hollow.observe(_DRAFTER, buffers.input_ids[:size], buffers.positions[:size])
        places = getattr(speculator, "idx_mapping", None)
        if places is not None:
            rows = getattr(desc, "num_reqs", None) or 0
            watch.inner_on_device("padded graph of the drafter", {"places": places[:rows]})
        return plain(desc)

    return run


def _noted(watch: RunnerWatch, hollow: Hollow, input_ids: Any, positions: Any) -> None:
    watch.counters["graph_replays"] += 1
    watch.counters["padded_rows"] += input_ids.shape[0] > watch.tokens
    hollow.observe(_MODEL, input_ids, positions)
