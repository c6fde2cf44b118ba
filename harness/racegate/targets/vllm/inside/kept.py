"""What the host keeps of requests between steps, what it chooses and what it gives back: the fields
of the scheduler, of the runner's rows or states, of the scheduler's output and of the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from inspect import getattr_static, getmembers, isfunction
from typing import Any, cast

import numpy as np
import torch

from racegate.targets.common.inside.fields import (
    LONG,
    NOTHING,
    by_name,
    fields_of,
    is_told,
    name_of,
    named,
    past_guards,
    plain,
)
from racegate.targets.common.inside.session import Tensor
from racegate.targets.common.inside.watch import Look, Values
from racegate.targets.common.wire import KEPT
from racegate.targets.vllm.inside.watch import RunnerWatch, outputs_by_client

Places = Mapping[str, int]  # of requests in arrays, by their names

_RECORDS = 3  # records in records of what is handed over; what is kept has configurations in it
_OWN = ("vllm.v1.worker.", "vllm.v1.spec_decode.")  # modules of classes
_NUMBERS = (int, float, np.bool_, np.number)
_SOMETHING = "<object>"  # in the place of NOTHING, where it says something that there is one


def watch_kept(watch: RunnerWatch, runner: Any, scheduler: Any) -> Callable[[Any], None]:
    """What is to be called when the runner is given a step, with the scheduler's output, and with
    None when all requests are done: nothing of them is kept then.
    """
    keeper = _Second(runner) if hasattr(runner, "req_states") else _First(runner)
    answers = _Answers(keeper.states())

    def note_host(scheduled: Any | None) -> None:
        if scheduled is not None:
            chosen = fields_of(scheduled, records=_RECORDS)
            watch.inner_on_host(f"{KEPT} for the runner", **chosen)
        with watch.own():
            of_scheduler, of_runner = _of_scheduler(scheduler), keeper.fields()
        watch.inner_on_host(f"{KEPT} in the scheduler", **of_scheduler)
        watch.inner_on_host(f"{KEPT} in the runner", **of_runner, **answers.take())

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
                ended = by_name({request.request_id: request}, "requests")
            watch.inner_on_host(f"{KEPT} at its end", **ended)
        return plain(request, *args, **kwargs)

    scheduler._free_request = free


def _of_outputs(made: Any) -> Values:
    """Of all clients. made: what the scheduler gives back"""
    found: Values = {}
    for client, outputs in sorted(outputs_by_client(made).items()):
        known = fields_of(outputs, records=_RECORDS)
        known.pop("outputs", None)
        of = "" if not client else f"client {client}."
        found |= {f"{of}{key}": value for key, value in known.items()}
        of_requests = {one.request_id: one for one in outputs.outputs}
        found |= by_name(of_requests, f"{of}outputs", records=_RECORDS)
    return found


def _of_scheduler(scheduler: Any) -> Values:
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    found = fields_of(scheduler)
    found |= by_name(scheduler.requests, "requests")
    found |= fields_of(manager, "blocks")
    found["blocks.free"] = pool.get_num_free_blocks()
    groups = getattr(getattr(manager, "coordinator", None), "single_type_managers", ())
    for number, group in enumerate(groups):
        found |= fields_of(group, f"blocks.group {number}")
    images = getattr(scheduler, "encoder_cache_manager", None)
    if images is not None:
        found |= fields_of(images, "encoded images")
    return found


class _First:
    """The runner whose batch has a row for each request, which moves."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def places(self) -> dict[str, int]:
        """Rows of requests."""
        return {name_of(one): at for one, at in self._runner.input_batch.req_id_to_index.items()}

    def states(self) -> Iterable[tuple[str, Any]]:
        """That answer the host: what its batch knows is kept in fields."""
        return ()

    def fields(self) -> Values:
        """Of the host."""
        runner, batch, places = self._runner, self._runner.input_batch, self.places()
        found = fields_of(runner) | by_name(runner.requests, "requests")
        found |= fields_of(batch, "batch") | _by_place(batch, places, batch.max_num_reqs, "batch")
        lengths = past_guards(batch.num_tokens_no_spec)
        for name in ("token_ids_cpu", "is_token_ids"):
            rows = getattr(batch, name, None)
            if rows is not None:
                known = {
                    one: past_guards(rows[at, : lengths[at]]).tolist() for one, at in places.items()
                }
                found[f"batch.{name}"] = plain(known)
        for one in getattr(batch.logitsprocs, "all", ()):
            found |= fields_of(one, f"batch.{type(one).__name__}")
        tables = getattr(batch.block_table, "block_tables", [])
        for number, table in enumerate(tables):
            found |= _by_place(table, places, batch.max_num_reqs, f"batch.group {number}")
        return found

    def on_device(self) -> dict[str, Tensor]:
        """Tensors with a row for each request."""
        batch = self._runner.input_batch
        return _with_rows(self._runner, batch.max_num_reqs, "")


class _Answers:
    """What states answered the host since it was last asked, each answer of a method once: whether
    any row has a top-p of its own, say, without which a kernel is not launched.
    """

    def __init__(self, states: Iterable[tuple[str, Any]]) -> None:
        self._found: dict[str, list[Any]] = {}
        for prefix, state in states:
            for name, _ in getmembers(type(state), isfunction):
                if not name.startswith("_"):
                    setattr(state, name, self._noting(_method(state, name), f"{prefix}.{name}()"))

    def take(self) -> Values:
        """In an order that says nothing of that of the calls."""
        found = {name: sorted(answers, key=repr) for name, answers in self._found.items()}
        self._found = {}
        return dict(found)

    def _noting(self, plain_method: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(plain_method)
        def answered(*args: Any, **kwargs: Any) -> Any:
            made = plain_method(*args, **kwargs)
            parts = made if isinstance(made, tuple) else (made,)
            if any(isinstance(one, _NUMBERS) for one in parts):
                answer = [_SOMETHING if (one := plain(each)) is NOTHING else one for each in parts]
                known = self._found.setdefault(name, [])
                if answer not in known:
                    known.append(answer)
            return made

        return answered


def _method(state: Any, name: str) -> Callable[..., Any]:
    """A method of an object, as its class has it when it is called: others may watch the class."""
    if name in vars(state):
        return cast(Callable[..., Any], getattr(state, name))
    kind = type(state)
    return lambda *args, **kwargs: getattr_static(kind, name).__get__(state, kind)(*args, **kwargs)


class _Second:
    """The runner whose states have a place for each request, which does not move."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._size = int(runner.req_states.max_num_reqs)

    def places(self) -> dict[str, int]:
        """Of requests."""
        return {name_of(one): at for one, at in self._runner.req_states.req_id_to_index.items()}

    def states(self) -> Iterator[tuple[str, Any]]:
        """By the names of their fields."""
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
        found = fields_of(self._runner)
        for prefix, state in self.states():
            found |= fields_of(state, prefix) | _by_place(state, places, self._size, prefix)
        states = [state for _, state in self.states()]
        for name, part in _parts(self._runner):
            if not any(part is state for state in states):
                found |= _of_part(part, name)
        blocks = getattr(self._runner.block_tables, "num_blocks", None)
        if blocks is not None:
            counts = past_guards(getattr(blocks, "np", blocks))
            found["blocks"] = {one: counts[..., at].tolist() for one, at in places.items()}
        return found

    def on_device(self) -> dict[str, Tensor]:
        """Tensors with a place for each request."""
        found: dict[str, Tensor] = {}
        for prefix, state in self.states():
            found |= _with_rows(state, self._size, f"{prefix}.")
        return found


def _parts(runner: Any) -> Iterator[tuple[str, Any]]:
    """What a runner is made of, by the names of its fields: objects of the worker's own classes."""
    for name, one in vars(runner).items():
        if type(one).__module__.startswith(_OWN) and hasattr(one, "__dict__"):
            yield name, one


def _of_part(part: Any, prefix: str) -> Values:
    """Its fields, and whether an object is there where another step has none."""
    told = ((name, plain(value)) for name, value in named(part) if is_told(name))
    return {f"{prefix}.{name}": _SOMETHING if value is NOTHING else value for name, value in told}


def _by_place(owner: Any, places: Places, size: int, prefix: str) -> Values:
    """Arrays of the host with a place for each request: by field, and then by request."""
    found: Values = {}
    for name, value in named(owner):
        array = getattr(value, "np", value)
        is_one = isinstance(array, np.ndarray) and array.ndim == 1 and len(array) == size
        if is_one and is_told(name):
            now = past_guards(array)
            found[f"{prefix}.{name}"] = {one: plain(now[at]) for one, at in places.items()}
    return found


def _with_rows(owner: Any, size: int, prefix: str) -> dict[str, Tensor]:
    """Tensors of the device with a row for each request, of small rows."""
    found: dict[str, Tensor] = {}
    for name, value in named(owner):
        tensor = getattr(value, "gpu", value)
        is_one = isinstance(tensor, torch.Tensor) and tensor.is_cuda and tensor.dim() in (1, 2)
        if is_one and tensor.shape[0] == size and tensor[0].numel() <= LONG:
            found[f"{prefix}{name}"] = tensor
    return found
