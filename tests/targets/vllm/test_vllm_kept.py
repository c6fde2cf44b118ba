"""What is kept of requests between steps, of a runner and a scheduler that have no vLLM."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from bare_session import engine_session
from racegate.targets.common.inside.fields import fields_of, past_guards
from racegate.targets.common.inside.watch import Values
from racegate.targets.vllm.inside.kept import watch_ends, watch_kept, watch_outputs
from racegate.targets.vllm.inside.watch import RunnerWatch


class Status(Enum):
    """Of a request."""

    RUNNING = 1


@dataclass
class Output:
    """What the scheduler chooses."""

    num_scheduled_tokens: dict[str, int]
    finished_req_ids: set[str]


class Scored(NamedTuple):
    """Tokens of a prompt."""

    token_ids: torch.Tensor
    logprobs: torch.Tensor


@dataclass
class Event:
    """Of a request."""

    type: Status
    timestamp: float


@dataclass
class Given:
    """To a client."""

    request_id: str
    new_token_ids: list[int]
    events: list[Event]


A, B = "A-00000001", "B-0000000b"


def request(name: str, computed: int) -> SimpleNamespace:
    return SimpleNamespace(
        request_id=name,
        arrival_time=1.5,
        status=Status.RUNNING,
        num_computed_tokens=computed,
        tokens=list(range(100)),
    )


def scheduler(**more: Any) -> Any:
    requests = {A: request(A, 5), B: request(B, 6)}
    pool = SimpleNamespace(get_num_free_blocks=lambda: 7)
    blocks = {A: [SimpleNamespace(block_id=3, ref_cnt=2)]}
    group = SimpleNamespace(req_to_blocks=blocks)
    coordinator = SimpleNamespace(single_type_managers=[group])
    manager = SimpleNamespace(block_pool=pool, coordinator=coordinator)
    return SimpleNamespace(
        requests=requests, running=[requests[B]], kv_cache_manager=manager, **more
    )


def runner() -> Any:
    batch = SimpleNamespace(
        req_id_to_index={A: 1, B: 0},
        max_num_reqs=4,
        num_tokens_no_spec=np.array([2, 3, 9, 9], dtype=np.int32),
        token_ids_cpu=np.arange(32, dtype=np.int32).reshape(4, 8),
        top_p_cpu=np.array([0.25, 0.5, 8.0, 8.0], dtype=np.float32),
        greedy_reqs={B, A},
        block_table=SimpleNamespace(block_tables=[]),
        logitsprocs=SimpleNamespace(all=()),
    )
    return SimpleNamespace(
        input_batch=batch, requests={A: request(A, 5)}, device=torch.device("cpu")
    )


def found(watch: RunnerWatch) -> dict[str, Values]:
    watch.read()
    return {name: values for _, name, values in watch.inner}


def test_fields_are_told_by_request_without_what_runs_have_of_their_own() -> None:
    watch = RunnerWatch(engine_session())
    watch_kept(watch, runner(), scheduler())(Output({A: 4}, {B}))
    seen = found(watch)
    assert seen["kept for the runner"] == {
        "num_scheduled_tokens": {"A": 4}, "finished_req_ids": ["B"]
    }  # fmt: skip
    of = seen["kept in the scheduler"]
    assert of["requests.num_computed_tokens"] == {"A": 5, "B": 6}
    assert of["requests.status"] == {"A": "RUNNING", "B": "RUNNING"}
    assert (of["running"], of["blocks.free"]) == (["B"], 7)
    assert of["blocks.group 0.req_to_blocks"] == {"A": [[3, 2]]}
    assert not [name for name in of if name.endswith("time")]


def test_which_encoded_images_are_kept_is_told() -> None:
    images = SimpleNamespace(num_free_slots=16, cached={"A 0": {A}, "B 0": set()})
    watch = RunnerWatch(engine_session())
    watch_kept(watch, runner(), scheduler(encoder_cache_manager=images))(None)
    of = found(watch)["kept in the scheduler"]
    assert of["encoded images.num_free_slots"] == 16
    assert of["encoded images.cached"] == {"A 0": ["A"], "B 0": []}


def test_a_long_list_is_told_by_its_end_and_every_value_counts() -> None:
    told = []
    for changed in (None, 50):
        made = scheduler()
        if changed is not None:
            made.requests[A].tokens[changed] = -1
        watch = RunnerWatch(engine_session())
        watch_kept(watch, runner(), made)(None)
        told.append(found(watch)["kept in the scheduler"]["requests.tokens"])
    first, second = told
    assert first["A"]["count"] == 100 and first["A"]["last"] == [96, 97, 98, 99]  # type: ignore[index]
    assert first != second


def test_arrays_are_told_of_rows_that_are_somebodys() -> None:
    watch = RunnerWatch(engine_session())
    watch_kept(watch, runner(), scheduler())(None)
    of = found(watch)["kept in the runner"]
    assert of["batch.top_p_cpu"] == {"A": 0.5, "B": 0.25}
    assert of["batch.token_ids_cpu"] == {"A": [8, 9, 10], "B": [0, 1]}
    assert of["batch.greedy_reqs"] == ["A", "B"]


def test_what_clients_are_given_has_no_clock() -> None:
    watch = RunnerWatch(engine_session())
    outputs = [Given(A, [5], [Event(Status.RUNNING, 3.25)])]
    made = {0: SimpleNamespace(outputs=outputs, finished_requests={B}, timestamp=9.0)}
    one = scheduler(update_from_output=lambda: made)
    watch_outputs(watch, one)
    assert one.update_from_output() is made
    assert found(watch)["kept for clients"] == {
        "finished_requests": ["B"],
        "outputs.request_id": {"A": "A"},
        "outputs.new_token_ids": {"A": [5]},
        "outputs.events": {"A": [{"type": "RUNNING"}]},
    }


def test_log_probabilities_that_clients_are_given_are_told() -> None:
    scored = Scored(torch.tensor([[7, 8]], dtype=torch.int32), torch.tensor([[-0.5, -2.25]]))
    outputs = [SimpleNamespace(request_id=A, scored=scored, half=torch.ones(1).bfloat16())]
    watch = RunnerWatch(engine_session())
    one = scheduler(update_from_output=lambda: {0: SimpleNamespace(outputs=outputs)})
    watch_outputs(watch, one)
    one.update_from_output()
    assert found(watch)["kept for clients"] == {
        "outputs.request_id": {"A": "A"},
        "outputs.scored": {"A": {"token_ids": [[7, 8]], "logprobs": [[-0.5, -2.25]]}},
        "outputs.half": {"A": [1.0]},
    }


def test_a_request_is_told_as_it_ends() -> None:
    watch, gone = RunnerWatch(engine_session()), []

    def free(one: Any, *, delay_free_blocks: bool = False) -> bool:
        gone.append(one.request_id)
        return delay_free_blocks

    of = scheduler(_free_request=free)
    watch_ends(watch, of)
    assert of._free_request(of.requests[B], delay_free_blocks=True) and gone == [B]
    ended = found(watch)["kept at its end"]
    assert ended["requests.num_computed_tokens"] == {"B": 6}
    assert ended["requests.status"] == {"B": "RUNNING"}


def test_closed_pages_are_read_without_a_touch() -> None:
    """A touch of them would be a fault, and a read of the engine's in what is judged."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    array = np.frombuffer(memory, np.int32)
    array[:] = range(len(array))
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.c_void_p(array.__array_interface__["data"][0])
    assert libc.mprotect(address, mmap.PAGESIZE, 0) == 0
    try:
        seen = past_guards(array)
        row = past_guards(array[4:7])
    finally:
        libc.mprotect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)
    assert seen.tolist() == list(range(len(array)))
    assert row.tolist() == [4, 5, 6]


@pytest.mark.parametrize(
    "array", [np.arange(6).reshape(2, 3)[:, 1], np.array([], np.int64), np.array([None, "a"])]
)
def test_what_cannot_be_read_past_guards_is_read_as_it_is(array: np.ndarray) -> None:
    assert past_guards(array).tolist() == array.tolist()


def part(module: str, **fields: Any) -> Any:
    """An object of a class that stands in a module."""
    made = type("Part", (), {"__module__": module})()
    vars(made).update(fields)
    return made


def test_the_parts_of_the_second_runner_are_told_by_their_names() -> None:
    states = part("vllm.v1.worker.gpu.states", max_num_reqs=4, req_id_to_index={A: 1})
    second = SimpleNamespace(
        req_states=states,
        sampler=SimpleNamespace(greedy=True),
        model_state=SimpleNamespace(),
        block_tables=part("vllm.v1.worker.gpu.block_table", rows_to_clear=3),
        timing=part(
            "vllm.v1.worker.gpu.async_utils", timed=[(object(), 4)], step=object(), last=None
        ),
        other=part("elsewhere", count=1),
    )
    watch = RunnerWatch(engine_session())
    watch_kept(watch, second, scheduler())(None)
    of = found(watch)["kept in the runner"]
    assert of["block_tables.rows_to_clear"] == 3 and len(of["timing.timed"]) == 1  # type: ignore[arg-type]
    assert (of["timing.step"], of["timing.last"]) == ("<object>", None)
    assert "states.max_num_reqs" in of and "req_states.max_num_reqs" not in of  # told once
    assert "other.count" not in of


class Narrowing:
    """A state of the second runner, as it is asked by the sampler."""

    def __init__(self) -> None:
        self.top_p = np.array([1.0, 0.5])

    def narrows(self, rows: list[int]) -> tuple[object, bool]:
        return object(), bool((self.top_p[rows] < 1.0).any())

    def apply(self, rows: list[int]) -> object:
        return object() if self.narrows(rows)[1] else None


def test_what_states_of_the_second_runner_answer_is_told_once_for_each_answer() -> None:
    state = Narrowing()
    states = part("vllm.v1.worker.gpu.states", max_num_reqs=4, req_id_to_index={A: 1})
    sampler = SimpleNamespace(sampling_states=state)
    second = SimpleNamespace(
        req_states=states, sampler=sampler, model_state=SimpleNamespace(), block_tables=states
    )
    watch = RunnerWatch(engine_session())
    note = watch_kept(watch, second, scheduler())
    for rows in ([0, 1], [0], [1], [0]):
        state.apply(rows)
    note(None)
    name = "sampler.sampling_states.narrows()"
    assert found(watch)["kept in the runner"][name] == [["<object>", False], ["<object>", True]]
    note(None)
    assert name not in found(watch)["kept in the runner"]


def test_who_watches_a_class_of_states_later_hears_of_its_calls_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise nothing is observed of the second runner's sampler, and nothing says so."""
    state = Narrowing()
    states = part("vllm.v1.worker.gpu.states", max_num_reqs=4, req_id_to_index={A: 1})
    second = SimpleNamespace(
        req_states=states, sampler=state, model_state=SimpleNamespace(), block_tables=states
    )
    watch_kept(RunnerWatch(engine_session()), second, scheduler())
    heard, plain = [], Narrowing.apply

    def apply(self: Narrowing, rows: list[int]) -> object:
        heard.append(rows)
        return plain(self, rows)

    monkeypatch.setattr(Narrowing, "apply", apply)
    assert state.apply([0]) is None and heard == [[0]]


def test_what_a_clock_says_and_where_a_file_lies_is_not_told_by_name_either() -> None:
    owner = SimpleNamespace(
        stats={"lookup_delay_seconds": 0.25, "lookups": 2}, wait_seconds=1.0, lora_path="/x"
    )
    assert fields_of(owner) == {"stats": {"lookups": 2}}
