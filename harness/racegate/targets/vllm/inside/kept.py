"""What the host keeps of requests between steps, what it chooses and what it gives back: the fields
of the scheduler, of the runner's rows or states, of the scheduler's output and of the engine's.

A field is found by what it holds and not by its name, so that a release may have others. Two
versions are compared by those that both have.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any

import msgspec
import numpy as np
import torch

from racegate.interpose.device.kept import peek
from racegate.targets.common.inside.session import Tensor
from racegate.targets.common.inside.watch import Look, Values
from racegate.targets.common.wire import KEPT
from racegate.targets.vllm.inside.watch import RunnerWatch, name_of

Places = Mapping[str, int]  # of requests in arrays, by their names

_RECORDS = 3  # records in records of what is handed over; what is kept has configurations in it
_OWN = ("vllm.v1.worker.", "vllm.v1.spec_decode.")  # modules of classes
_LONG = 48  # values of a list that is told by its end and a checksum
_SHOWN = 4
_CLOCKS = ("time", "timestamp", "_seconds")  # endings of fields that no two runs have in common
_NOTHING = object()  # of a value that says nothing: an object of another library, bytes of a hash
_SOMETHING = "<object>"  # in its place, where it says something that there is one
_AS_IT_IS = frozenset({bool, int, type(None)})
_PLAIN = (bool, int, str, type(None))
_DECIMALS = 4  # of what is computed


def watch_kept(watch: RunnerWatch, runner: Any, scheduler: Any) -> Callable[[Any], None]:
    """What is to be called when the runner is given a step, with the scheduler's output, and with
    None when all requests are done: nothing of them is kept then.
    """
    keeper = _Second(runner) if hasattr(runner, "req_states") else _First(runner)

    def note_host(scheduled: Any | None) -> None:
        if scheduled is not None:
            chosen = _fields(scheduled, records=_RECORDS)
            watch.inner_on_host(f"{KEPT} for the runner", **chosen)
        with watch.own():
            of_scheduler, of_runner = _of_scheduler(scheduler), keeper.fields()
        watch.inner_on_host(f"{KEPT} in the scheduler", **of_scheduler)
        watch.inner_on_host(f"{KEPT} in the runner", **of_runner)

    def note(scheduled: Any | None) -> None:
        if not watch.is_held:
            note_host(scheduled)
        places = keeper.places()
        tensors, at = keeper.on_device(), list(places.values())
        if at and tensors:
            looks: dict[str, Look] = dict.fromkeys(tensors, lambda memory: memory[at])
            watch.inner_look(f"{KEPT} on the device", tensors, looks, rows=list(places))

    return note


def watch_outputs(watch: RunnerWatch, scheduler: Any) -> None:
    """What the engine gives back of a step: tokens, why requests end, events, statistics."""
    plain = scheduler.update_from_output

    def update(*args: Any, **kwargs: Any) -> Any:
        made = plain(*args, **kwargs)
        if not watch.is_held:
            with watch.own():
                found = _of_outputs(made)
            watch.inner_on_host(f"{KEPT} for clients", **found)
        return made

    scheduler.update_from_output = update


def watch_ends(watch: RunnerWatch, scheduler: Any) -> None:
    """What the scheduler has of a request that ends, when it gives its blocks back: connectors and
    sessions go on from there, and nothing is kept of it behind that.
    """
    plain = scheduler._free_request

    def free(request: Any, *args: Any, **kwargs: Any) -> Any:
        if not watch.is_held:
            with watch.own():
                ended = _by_name({request.request_id: request}, "requests")
            watch.inner_on_host(f"{KEPT} at its end", **ended)
        return plain(request, *args, **kwargs)

    scheduler._free_request = free


def _of_outputs(made: Any) -> Values:
    """Of all clients. made: outputs by client; a list of them in old releases"""
    found: Values = {}
    for client, outputs in sorted(made.items()) if isinstance(made, dict) else [(0, made)]:
        known = _fields(outputs, records=_RECORDS)
        known.pop("outputs", None)
        of = "" if not client else f"client {client}."
        found |= {f"{of}{key}": value for key, value in known.items()}
        by_name = {one.request_id: one for one in outputs.outputs}
        found |= _by_name(by_name, f"{of}outputs", records=_RECORDS)
    return found


def _of_scheduler(scheduler: Any) -> Values:
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    found = _fields(scheduler)
    found |= _by_name(scheduler.requests, "requests")
    found |= _fields(manager, "blocks")
    found["blocks.free"] = pool.get_num_free_blocks()
    groups = getattr(getattr(manager, "coordinator", None), "single_type_managers", ())
    for number, group in enumerate(groups):
        found |= _fields(group, f"blocks.group {number}")
    return found


class _First:
    """The runner whose batch has a row for each request, which moves."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def places(self) -> dict[str, int]:
        """Rows of requests."""
        return {name_of(one): at for one, at in self._runner.input_batch.req_id_to_index.items()}

    def fields(self) -> Values:
        """Of the host."""
        runner, batch, places = self._runner, self._runner.input_batch, self.places()
        found = _fields(runner) | _by_name(runner.requests, "requests")
        found |= _fields(batch, "batch") | _by_place(batch, places, batch.max_num_reqs, "batch")
        lengths = _past_guards(batch.num_tokens_no_spec)
        for name in ("token_ids_cpu", "is_token_ids"):
            rows = getattr(batch, name, None)
            if rows is not None:
                known = {
                    one: _past_guards(rows[at, : lengths[at]]).tolist()
                    for one, at in places.items()
                }
                found[f"batch.{name}"] = _plain(known)
        for one in getattr(batch.logitsprocs, "all", ()):
            found |= _fields(one, f"batch.{type(one).__name__}")
        tables = getattr(batch.block_table, "block_tables", [])
        for number, table in enumerate(tables):
            found |= _by_place(table, places, batch.max_num_reqs, f"batch.group {number}")
        return found

    def on_device(self) -> dict[str, Tensor]:
        """Tensors with a row for each request."""
        batch = self._runner.input_batch
        return _with_rows(self._runner, batch.max_num_reqs, "")


class _Second:
    """The runner whose states have a place for each request, which does not move."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._size = int(runner.req_states.max_num_reqs)

    def places(self) -> dict[str, int]:
        """Of requests."""
        return {name_of(one): at for one, at in self._runner.req_states.req_id_to_index.items()}

    def _states(self) -> Iterator[tuple[str, Any]]:
        runner = self._runner
        yield "states", runner.req_states
        sampler = runner.sampler
        yield "sampler", sampler
        for name, one in vars(sampler).items():
            if name.endswith(("_state", "_states")) and hasattr(one, "__dict__"):
                yield f"sampler.{name}", one
        yield "model", runner.model_state

    def fields(self) -> Values:
        """Of the host."""
        places = self.places()
        found = _fields(self._runner)
        for prefix, state in self._states():
            found |= _fields(state, prefix) | _by_place(state, places, self._size, prefix)
        states = [state for _, state in self._states()]
        for name, part in _parts(self._runner):
            if not any(part is state for state in states):
                found |= _of_part(part, name)
        blocks = getattr(self._runner.block_tables, "num_blocks", None)
        if blocks is not None:
            counts = _past_guards(getattr(blocks, "np", blocks))
            found["blocks"] = {one: counts[..., at].tolist() for one, at in places.items()}
        return found

    def on_device(self) -> dict[str, Tensor]:
        """Tensors with a place for each request."""
        found: dict[str, Tensor] = {}
        for prefix, state in self._states():
            found |= _with_rows(state, self._size, f"{prefix}.")
        return found


def _parts(runner: Any) -> Iterator[tuple[str, Any]]:
    """What a runner is made of, by the names of its fields: objects of the worker's own classes."""
    for name, one in vars(runner).items():
        if type(one).__module__.startswith(_OWN) and hasattr(one, "__dict__"):
            yield name, one


def _of_part(part: Any, prefix: str) -> Values:
    """Its fields, and whether an object is there where another step has none."""
    told = ((name, _plain(value)) for name, value in _named(part) if _is_told(name))
    return {f"{prefix}.{name}": _SOMETHING if value is _NOTHING else value for name, value in told}


def _fields(owner: Any, prefix: str = "", *, records: int = 0) -> Values:
    """Those that can be told, by their names. records: how many of them may be in each other"""
    of = f"{prefix}." if prefix else ""
    told = ((name, _plain(value, records)) for name, value in _named(owner) if _is_told(name))
    return {f"{of}{name}": value for name, value in told if value is not _NOTHING}


def _by_name(owners: Mapping[str, Any], prefix: str, *, records: int = 0) -> Values:
    """Objects of requests: by field, and then by request."""
    found: dict[str, dict[str, object]] = {}
    for identity, owner in owners.items():
        for name, value in _fields(owner, prefix, records=records).items():
            found.setdefault(name, {})[name_of(identity)] = value
    return dict(found)


def _by_place(owner: Any, places: Places, size: int, prefix: str) -> Values:
    """Arrays of the host with a place for each request: by field, and then by request."""
    found: Values = {}
    for name, value in _named(owner):
        array = getattr(value, "np", value)
        is_one = isinstance(array, np.ndarray) and array.ndim == 1 and len(array) == size
        if is_one and _is_told(name):
            now = _past_guards(array)
            found[f"{prefix}.{name}"] = {one: _plain(now[at]) for one, at in places.items()}
    return found


def _with_rows(owner: Any, size: int, prefix: str) -> dict[str, Tensor]:
    """Tensors of the device with a row for each request, of small rows."""
    found: dict[str, Tensor] = {}
    for name, value in _named(owner):
        tensor = getattr(value, "gpu", value)
        is_one = isinstance(tensor, torch.Tensor) and tensor.is_cuda and tensor.dim() in (1, 2)
        if is_one and tensor.shape[0] == size and tensor[0].numel() <= _LONG:
            found[f"{prefix}{name}"] = tensor
    return found


def _named(owner: Any) -> Iterable[tuple[str, Any]]:
    """Fields of an object: of a class of its own, a dataclass, a struct or a named tuple."""
    if isinstance(owner, msgspec.Struct):
        return [(name, getattr(owner, name)) for name in owner.__struct_fields__]
    if dataclasses.is_dataclass(owner):
        return [(one.name, getattr(owner, one.name)) for one in dataclasses.fields(owner)]
    if hasattr(owner, "_fields"):
        return list(zip(owner._fields, owner, strict=True))
    return list(vars(owner).items())


def _past_guards(array: np.ndarray) -> np.ndarray:
    """The values of an array now. Pages of pinned memory that the device may be using are closed,
    and to read them as the engine does would be taken for a touch by the engine.
    """
    is_flat = array.flags.c_contiguous and array.nbytes and not array.dtype.hasobject
    low = array.__array_interface__["data"][0]
    held = peek(low, low + array.nbytes) if is_flat else None
    return array if held is None else np.frombuffer(held, array.dtype).reshape(array.shape)


def _is_told(name: str) -> bool:
    return not name.endswith(_CLOCKS)


def _plain(value: Any, records: int = 0) -> Any:
    """A value as it can be compared with that of another process; _NOTHING if it cannot."""
    if type(value) in _AS_IT_IS:  # most are, and each is looked at in every step
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, str):
        return name_of(value)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float | np.floating):
        return round(float(value), _DECIMALS)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and records:
        return _short(_past_guards(value).tolist())
    if isinstance(value, torch.Generator):
        return value.initial_seed()
    if isinstance(value, dict):
        entries = [(key, one) for key, one in value.items() if _is_told(str(key))]
        return {str(_inside(key, records)): _inside(one, records) for key, one in entries}
    if isinstance(value, set | frozenset):
        return sorted(map(partial(_inside, records=records), value), key=repr)
    is_record = _is_record(value)
    if isinstance(value, list | tuple | deque) and not is_record:
        return _short([_inside(one, records) for one in value])
    if is_record and records:
        return _fields(value, records=records - 1)
    return _of_object(value)


def _is_record(value: Any) -> bool:
    if isinstance(value, tuple | list | deque):
        return hasattr(value, "_fields")
    return isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value)


def _inside(value: Any, records: int) -> Any:
    """An entry of a list: one that says nothing is told by its type."""
    found = _plain(value, records)
    return f"<{type(value).__name__}>" if found is _NOTHING else found


def _short(values: list[Any]) -> Any:
    """A long list by its length, its end and a checksum."""
    if len(values) <= _LONG:
        return values
    checksum = zlib.crc32(msgspec.json.encode(values))
    return {"count": len(values), "last": values[-_SHOWN:], "checksum": checksum}


def _of_object(value: Any) -> Any:
    """Requests by their names, blocks by their numbers and how many use them."""
    known = getattr(value, "__dict__", {})
    if isinstance(known.get("request_id"), str):
        return name_of(known["request_id"])
    if hasattr(value, "block_id") and hasattr(value, "ref_cnt"):
        return [value.block_id, value.ref_cnt]
    return _NOTHING
