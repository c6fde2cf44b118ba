"""What is observed of vLLM's runners at their boundaries, and which of it is not true."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any

import torch

from racegate.targets.common.inside.fields import name_of, named
from racegate.targets.common.inside.session import EngineSession
from racegate.targets.common.inside.watch import Values, Watch
from racegate.targets.common.wire import KEPT, Observed, Wrong
from racegate.targets.vllm.inside.tiers.pages import TAGS
from racegate.targets.vllm.wire import DRAFTS_USUAL

# What makes the metadata of recurrent layers: the module and its class.
GATED_DELTA = ("vllm.v1.attention.backends.gdn_attn", "GDNAttentionMetadataBuilder")
MAMBA2 = ("vllm.v1.attention.backends.mamba2_attn", "Mamba2AttentionMetadataBuilder")
# Where the slots of states stand in it: by field, the count of the rows that have these.
STATES = {
    GATED_DELTA: {
        "spec_state_indices_tensor": "drafted",
        "non_spec_state_indices_tensor": "others",
    },
    MAMBA2: {"state_indices_tensor_d": "num_decodes", "state_indices_tensor_p": "num_prefills"},
}
# Of attention's metadata, on the host, by the names of several releases.
_METADATA_MAX = 4096  # values of one field
_HOST_LENGTHS = ("seq_lens_cpu_upper_bound", "_seq_lens_cpu", "_num_computed_tokens_cpu")


class RunnerWatch(Watch):
    """Observations of one run.

    state_block: how many tokens a block of recurrent states is for, 0 if that is not known
    draft_len: drafts of a request in a step at most
    numbers: of the groups of layers that share a block table, by the names of the layers
    is_held: whether a run has holds: what only two versions are compared by is not asked for then
    """

    def __init__(
        self,
        session: EngineSession,
        *,
        state_block: int = 0,
        draft_len: int = DRAFTS_USUAL,
        numbers: Mapping[str, int] | None = None,
    ) -> None:
        self.state_block = state_block
        self.draft_len = draft_len
        self.numbers = numbers or {}
        self.is_held = False
        super().__init__(session)

    def begin(
        self,
        plant: Observed | None = None,
        *,
        has_grammars: bool = False,
        drawn: frozenset[str] = frozenset(),
        shifted: frozenset[str] = frozenset(),
    ) -> None:
        """A run begins. plant: what is made wrong in it; has_grammars: masks are observed

        drawn: requests whose drafts are drawn; shifted: whose later positions are not their places
        """
        super().begin()
        self.has_grammars, self.drawn, self.shifted = has_grammars, drawn, shifted
        self.accepted: dict[int, dict[str, int]] = {}
        self.tokens = 0  # that the scheduler chose for the step
        self.plant = plant

    def note_holds(self, holds: Collection[object]) -> None:
        """What is held in the run that comes next."""
        self.is_held = bool(holds)

    def group_of(self, builder: Any) -> dict[str, int]:
        """The group whose metadata a builder makes, where that is known."""
        layers = getattr(builder, "layer_names", None) or [""]
        number = self.numbers.get(layers[0])
        return {} if number is None else {"group": number}

    def planted_blocks(self, block_ids: list[int]) -> list[int]:
        """What is zeroed where it is asked for these. Block 0 belongs to nobody."""
        return [block - 1 for block in block_ids] if self.plant is Observed.ZEROED else block_ids


def watch_metadata(watch: RunnerWatch, rows: Callable[[], list[str]]) -> None:
    """The metadata of recurrent layers: which count, lengths and slots each row is run with."""
    for (path, name), slots in STATES.items():
        builder = getattr(import_module(path), name)
        builder.build = _metadata_seen(watch, rows, builder.build, slots)
        if hasattr(builder, "update_block_table"):
            later = _later_seen(watch, rows, builder.update_block_table, slots)
            builder.update_block_table = later


def _metadata_seen(
    watch: RunnerWatch, rows: Callable[[], list[str]], plain: Any, slots: Mapping[str, str]
) -> Any:
    signature = inspect.signature(plain)

    def build(*args: Any, **kwargs: Any) -> Any:
        made = plain(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        given |= given.get("kwargs", {})
        names = rows()
        if not names:
            return made
        common = given["common_attn_metadata"]
        counts = given.get("num_accepted_tokens")
        drafts = given.get("num_decode_draft_tokens_cpu")
        count = len(names)
        tensors = {
            "query_start": common.query_start_loc[: count + 1],
            "seq_lens": common.seq_lens[:count],
        }
        if counts is not None:
            tensors["accepted"] = counts[:count]
        drafted = [False] * count if drafts is None else [int(n) >= 0 for n in drafts[:count]]
        known: dict[str, Any] = watch.group_of(args[0])
        if hasattr(made, "num_spec_decodes"):
            owned = {"drafted": made.num_spec_decodes, "others": count - made.num_spec_decodes}
        else:
            owned = {"num_decodes": made.num_decodes, "num_prefills": made.num_prefills}
            known["decodes"] = made.num_decodes
        for field, rows_with in slots.items():
            tensor = getattr(made, field)
            if tensor is not None:
                tensors[field] = tensor[: owned[rows_with]]
        watch.on_device("metadata", tensors, rows=names, drafted=drafted, **known)
        _note_whole(watch, made, names)
        return made

    return build


def _later_seen(
    watch: RunnerWatch, rows: Callable[[], list[str]], plain: Any, slots: Mapping[str, str]
) -> Any:
    """Of a later group of states, whose metadata is that of the first with other slots."""

    def update(builder: Any, *args: Any, **kwargs: Any) -> Any:
        made = plain(builder, *args, **kwargs)
        names = rows()
        drafted = getattr(made, "num_spec_decodes", None)
        if names and drafted is not None:
            owned = {"drafted": drafted, "others": len(names) - drafted}
            given = {field: getattr(made, field) for field in slots}
            tensors = {
                field: tensor[: owned[slots[field]]]
                for field, tensor in given.items()
                if tensor is not None
            }
            known = watch.group_of(builder)
            watch.inner_on_device("metadata of a later group", tensors, rows=names, **known)
        return made

    return update


def watch_attention(watch: RunnerWatch, rows: Callable[[], list[str]]) -> None:
    """The metadata of attention layers, of the model's and of the drafter's: where keys and values
    are written, and the lengths that the host believes in.
    """
    from vllm.v1.attention.backends.triton_attn import TritonAttentionMetadataBuilder as Builder

    plain = Builder.build
    signature = inspect.signature(plain)

    def build(*args: Any, **kwargs: Any) -> Any:
        made = plain(*args, **kwargs)
        common = signature.bind(*args, **kwargs).arguments["common_attn_metadata"]
        names = rows()
        if names:
            count = len(names)
            tensors = {
                "query_start": common.query_start_loc[: count + 1],
                "seq_lens": common.seq_lens[:count],
                "slots": common.slot_mapping[: common.num_actual_tokens],
                "table": common.block_table_tensor[:count],
            }
            # A property would compute a length, and wait for it.
            found = {field: vars(common).get(field) for field in _HOST_LENGTHS}
            lengths = {key: tensor[:count] for key, tensor in found.items() if tensor is not None}
            known: dict[str, Any] = watch.on_host_now(lengths) | watch.group_of(args[0])
            watch.inner_on_device("attention", tensors, rows=names, **known)
            _note_whole(watch, made, names)
        return made

    Builder.build = build


def _note_whole(watch: RunnerWatch, made: Any, names: list[str]) -> None:
    """All of a layer's metadata, whatever a release has in it: lengths, places and masks."""
    tensors, known = {}, {}
    for field, value in _entries(made):
        if isinstance(value, bool | int):
            known[field] = value
        elif isinstance(value, torch.Tensor) and value.is_cuda and _is_small(value):
            tensors[field] = value
    watch.inner_on_device(f"{KEPT} in metadata", tensors, rows=names, **known)


def _entries(made: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Fields, and those of what is in them: dictionaries and records."""
    of = made.items() if isinstance(made, dict) else named(made)
    for name, value in of:
        if isinstance(value, dict) or is_dataclass(value):
            yield from _entries(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _is_small(tensor: torch.Tensor) -> bool:
    """Whether it is no workspace, which nobody has filled."""
    return not tensor.is_floating_point() and 0 < tensor.numel() <= _METADATA_MAX


def outputs_by_client(made: Any) -> dict[int, Any]:
    """What a step gives back, by client. made: so; it is a list in old releases"""
    return made if isinstance(made, dict) else {0: made}


def stops_inside(made: Any, tokens: Mapping[str, list[int]]) -> int:
    """How many requests a token ended that was not the last one of those they got."""
    outputs = [one for of in outputs_by_client(made).values() for one in of.outputs]
    return sum(
        str(one.finish_reason) == "stop"
        and len(one.new_token_ids) < len(tokens.get(name_of(one.request_id), ()))
        for one in outputs
    )


def watch_scheduler(watch: RunnerWatch, scheduler: Any) -> None:
    """What the verification gave each request, as the scheduler gets it."""
    plain = scheduler.update_from_output

    def update(scheduled: Any, output: Any) -> Any:
        rows = output.req_id_to_index
        watch.counters["overlapped_ops"] += watch.step > scheduled.racegate_step
        watch.counters["preemptions"] += len(getattr(scheduled, "preempted_req_ids", None) or ())
        tokens = {
            name_of(r): list(map(int, output.sampled_token_ids[i]))  # some are NumPy's
            for r, i in rows.items()
            if output.sampled_token_ids
        }
        drafted = scheduled.scheduled_spec_decode_tokens
        drafts = {name_of(one): len(drafted.get(one, ())) for one in rows}
        for name, ids in tokens.items():
            is_rejected = 0 < len(ids) < drafts[name] + 1
            watch.counters["rejections"] += is_rejected
            watch.counters["mrope_drifts"] += is_rejected and name in watch.shifted
            watch.counters["full_accepts"] += 0 < watch.draft_len == len(ids) - 1
            watch.counters["discarded_rows"] += not ids
        watch.on_host("sampled", step=scheduled.racegate_step, tokens=tokens)
        watch.accepted[scheduled.racegate_step] = {name: len(ids) for name, ids in tokens.items()}
        made = plain(scheduled, output)
        watch.counters["stops_inside_run"] += stops_inside(made, tokens)
        return made

    scheduler.update_from_output = update


def watch_rows(watch: RunnerWatch, batch: Any) -> None:
    """Row moves of a persistent batch. batch: the class, or an instance."""
    for name, counter in (("swap_states", "reorder_moves"), ("condense", "")):
        plain = getattr(batch, name, None)
        if plain is not None:
            setattr(batch, name, _counted(watch, plain, counter))


def _counted(watch: RunnerWatch, plain: Any, counter: str) -> Any:
    def moved(*args: Any, **kwargs: Any) -> Any:
        if counter:
            watch.counters[counter] += 1
            return plain(*args, **kwargs)
        batch = args[0]
        before = dict(batch.req_id_to_index)
        result = plain(*args, **kwargs)
        after = batch.req_id_to_index
        watch.counters["condense_moves"] += sum(after.get(k) != v for k, v in before.items())
        return result

    return moved


def watch_zeroing(watch: RunnerWatch) -> None:
    """Fresh blocks: which ones the device zeroes, and which the scheduler asked for."""
    import vllm.v1.worker.utils as utils

    if not hasattr(utils, "KVBlockZeroer"):
        return  # releases before it zero none
    plain, kernel = utils.KVBlockZeroer.zero_block_ids, utils._zero_kv_blocks_kernel
    place = list(inspect.signature(kernel.fn).parameters).index("block_ids_ptr")
    asked: list[int] = []

    def zero_block_ids(zeroer: Any, block_ids: list[int]) -> None:
        asked[:] = block_ids
        plain(zeroer, watch.planted_blocks(block_ids))

    class Launches:
        """The kernel; what it is about to zero is observed on its stream."""

        def __getitem__(self, grid: Any) -> Any:
            def launch(*args: Any, **kwargs: Any) -> Any:
                watch.counters["zeroed_blocks"] += len(asked)
                watch.on_device("zeroed", {"blocks": args[place]}, asked=list(asked))
                return kernel[grid](*args, **kwargs)

            return launch

    utils.KVBlockZeroer.zero_block_ids = zero_block_ids
    utils._zero_kv_blocks_kernel = Launches()


def find_wrong(watch: RunnerWatch) -> list[Wrong]:
    """Values that are not true: counts of rows with drafts, lists of blocks to zero."""
    found: list[Wrong] = []
    for step, name, values in watch.seen:
        if name == "metadata":
            found += _wrong_counts(step, values, watch)
        elif name == "zeroed" and values.get("blocks") != values["asked"]:
            used, true = values.get("blocks"), values["asked"]
            assert isinstance(used, list) and isinstance(true, list)
            found.append(Wrong(step=step, what="blocks to zero", used=used, true=true))
        elif name == TAGS:
            found += wrong_tags(step, values)
    return found


def wrong_tags(step: int, values: Values) -> list[Wrong]:
    """Places of a request's context where its pages have something else: its blocks were not
    loaded, or are another's, or were zeroed or written by somebody else behind that.
    """
    rows, tags = values["rows"], values.get("tags")
    if not isinstance(tags, list):
        return []
    assert isinstance(rows, list)
    return [
        Wrong(step=step, what=f"page of request {request}", used=[place, *tag], true=[place])
        for request, (place, *tag) in zip(rows, tags, strict=True)
        if place >= 0
    ]


def _wrong_counts(step: int, values: Values, watch: RunnerWatch) -> list[Wrong]:
    """Rows with drafts that are run with another count than the step before accepted: behind a
    chunk, which gets none, that is 1.
    """
    counts, rows, drafted = values.get("accepted"), values["rows"], values["drafted"]
    if not isinstance(counts, list):
        return []
    assert isinstance(rows, list) and isinstance(drafted, list)
    true = {name: max(count, 1) for name, count in watch.accepted.get(step - 1, {}).items()}
    return [
        Wrong(
            step=step,
            what=f"accepted count of request {request} in row {row}",
            used=used,
            true=true[request],
        )
        for row, (request, used, is_drafted) in enumerate(zip(rows, counts, drafted, strict=True))
        if is_drafted
        and request in true
        and used != true[request]
        and not (used == 1 and _begins_block(values, row, watch))
    ]


def _begins_block(values: Values, row: int, watch: RunnerWatch) -> bool:
    """Whether the request may have come into another block of recurrent states in this step or the
    one before: vLLM copies the accepted state there, and says so with a count of 1.
    """
    lengths, starts = values["seq_lens"], values["query_start"]
    assert isinstance(lengths, list) and isinstance(starts, list)
    end, size = lengths[row], watch.state_block
    begin = end - (starts[row + 1] - starts[row]) - (watch.draft_len + 1)
    return bool(size) and begin // size != (end - 1) // size
