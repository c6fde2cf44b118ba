"""The scheduler: made once on the virtual device, and its event loop run for a scenario."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
from array import array
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import torch

from racegate.scenario.spec import Abort, Request, Scenario
from racegate.targets.common.inside.session import EngineSession
from racegate.targets.sglang.inside.drafts import drafter_of, watch_drafts
from racegate.targets.sglang.inside.kept import note_output, watch_kept, watch_passes
from racegate.targets.sglang.inside.model import EMBEDDED, config, fill_drafter, fill_weights
from racegate.targets.sglang.inside.naming import named_buffers
from racegate.targets.sglang.inside.tensors import watch_tensors
from racegate.targets.sglang.inside.truth import PassTruth
from racegate.targets.sglang.inside.watch import (
    SchedulerWatch,
    watch_forward,
    watch_retraction,
    watch_states,
)
from racegate.targets.sglang.wire import DRAFT_LEN, VOCAB, ModelKind

CHUNK = 64  # tokens of a prefill that one step takes at most
TRACKED = 64  # tokens between states that are kept for prefixes
IDLE_STEPS = 3  # after the last result


class _Over(Exception):
    """The scenario is over: leaves SGLang's endless loop."""


def start(folder: Path, *, model: ModelKind) -> Any:
    """SGLang's scheduler with its worker, in this process. folder: for the model's files."""
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.server_args import PortArgs, ServerArgs

    (folder / "config.json").write_text(json.dumps(config(model)))
    known = _fields_of(ServerArgs)
    given = {key: value for key, value in _arguments(folder, model).items() if key in known}
    arguments = ServerArgs(**given)
    _publish(arguments)
    names = inspect.signature(PortArgs.__init__).parameters
    places = {n: f"ipc://{folder}/{n}" if "ipc" in n else 0 for n in names if n != "self"}
    places["nccl_port"] = _free_port()
    ranks: dict[str, int | None] = {
        name: 0
        for name in inspect.signature(Scheduler.__init__).parameters
        if name.endswith("rank") or name == "gpu_id"
    }
    if "dp_rank" in ranks:
        ranks["dp_rank"] = None
    scheduler = Scheduler(server_args=arguments, port_args=PortArgs(**places), **ranks)
    if not scheduler.enable_overlap:
        raise RuntimeError("this release does not overlap scheduling with this configuration")
    return scheduler


def _fields_of(record: type) -> dict[str, object]:
    """Types of the fields of a dataclass, or of a struct as newer releases have them."""
    if dataclasses.is_dataclass(record):
        return {field.name: field.type for field in dataclasses.fields(record)}
    return {field.name: field.type for field in msgspec.structs.fields(record)}


def _required_of(record: type) -> set[str]:
    """Fields of a struct that have no default."""
    if dataclasses.is_dataclass(record):
        return set()
    return {field.name for field in msgspec.structs.fields(record) if field.required}


def _publish(arguments: Any) -> None:
    """In releases whose parts ask the process for their arguments, as its launcher does."""
    try:
        context = importlib.import_module("sglang.srt.runtime_context")
    except ImportError:
        return
    if hasattr(context, "SpawnRanks"):
        ranks = context.SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0)
        context.publish(arguments, role="scheduler", ranks=ranks)


def _arguments(folder: Path, model: ModelKind) -> dict[str, Any]:
    """Under all names that releases have for them."""
    common: dict[str, Any] = {
        "model_path": str(folder),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "device": "cuda",
        "dtype": "float32",
        "attention_backend": "triton",
        "sampling_backend": "pytorch",
        "disable_cuda_graph": True,
        "disable_piecewise_cuda_graph": True,
        "mem_fraction_static": 0.5,
        "max_total_tokens": 2048,
        "max_running_requests": 4,
        "schedule_conservativeness": 0.3,  # few slots are kept for requests that run
        "chunked_prefill_size": CHUNK,
        "page_size": 1,
        "context_length": 1024,
        "disable_custom_all_reduce": True,
        "grammar_backend": "none",
        "random_seed": 0,
        "log_level": "error",
    }
    if model is ModelKind.DENSE:
        return common
    hybrid = common | {
        "mamba_scheduler_strategy": "extra_buffer",
        "mamba_radix_cache_strategy": "extra_buffer",
        "mamba_track_interval": TRACKED,
        "max_mamba_cache_size": 24,
    }
    if model is ModelKind.HYBRID:
        return hybrid
    return hybrid | {
        "speculative_algorithm": "NEXTN",
        "speculative_num_steps": DRAFT_LEN,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": DRAFT_LEN + 1,
    }


def _free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Driver:
    """Runs scenarios on a started scheduler."""

    def __init__(self, scheduler: Any, session: EngineSession) -> None:
        self._scheduler = scheduler
        self.watch = SchedulerWatch(session)
        self._scenario: Scenario | None = None
        self._waiting: dict[int, Request] = {}
        self._aborts: list[Abort] = []
        self._ended: set[str] = set()
        self._idle = 0
        self.delivered: dict[str, tuple[int, ...]] = {}
        self.runner = scheduler.tp_worker.model_runner
        drafter = drafter_of(scheduler)
        if drafter is None:
            fill_weights(self.runner.model)
        else:
            fill_drafter(drafter.model)
            fill_weights(self.runner.model, embedded=EMBEDDED)
        session.listener.name_buffers(named_buffers(scheduler))
        self._take_over()
        watch_forward(self.watch, scheduler)
        watch_retraction(self.watch)
        watch_passes(self.watch, self.runner)
        watch_tensors(self.watch, self.runner)
        self._note_kept = watch_kept(self.watch, scheduler)
        if drafter is not None:
            watch_drafts(self.watch, scheduler, drafter)

    def _take_over(self) -> None:
        """Requests come from the scenario, and results stay here."""
        scheduler = self._scheduler
        receiver = getattr(scheduler, "request_receiver", None)
        if receiver is None:
            scheduler.recv_requests = lambda *args, **kwargs: self._receive()
        else:
            type(receiver).recv_requests = lambda *args, **kwargs: self._receive()
        channels = getattr(scheduler, "ipc_channels", scheduler)
        type(channels.send_to_detokenizer).send_output = self._give
        scheduler.on_idle = lambda: None
        process = scheduler.process_batch_result

        def process_batch_result(batch: Any, result: Any) -> Any:
            made = process(batch, result)
            self._deliver(batch)
            return made

        scheduler.process_batch_result = process_batch_result

    def run(self, scenario: Scenario) -> dict[str, tuple[int, ...]]:
        """Delivered tokens by request."""
        self._scenario = scenario
        self._waiting = dict(enumerate(scenario.requests))
        self._aborts = [event for event in scenario.events if isinstance(event, Abort)]
        self.delivered = {request.name: () for request in scenario.requests}
        taken = self._leave_slots(scenario.free_blocks)
        loop = getattr(self._scheduler, "run_event_loop", self._scheduler.event_loop_overlap)
        with suppress(_Over):
            loop()
        torch.cuda.synchronize()
        watch_states(self.watch, self._scheduler)
        self.watch.note_operations()
        del taken
        return self.delivered

    def _leave_slots(self, count: int | None) -> Any:
        """Takes all but so many slots of attention's cache; what is taken, while it lives."""
        allocator = self._scheduler.token_to_kv_pool_allocator
        return None if count is None else allocator.alloc(allocator.available_size() - count)

    def truth(self) -> PassTruth:
        """All passes, beside what is true of them."""
        assert self._scenario is not None
        prompts = {one.name: _prompt_of(one) for one in self._scenario.requests}
        truth = PassTruth({n: (*tokens, *self.delivered[n]) for n, tokens in prompts.items()})
        truth.read(self.watch.inner)
        return truth

    def _receive(self) -> list[Any]:
        """What comes in at the top of an iteration of the event loop."""
        assert self._scenario is not None
        watch = self.watch
        watch.begin_step()
        self._note_kept()
        is_done = not self._waiting and len(self._ended) == len(self._scenario.requests)
        self._idle += is_done
        if self._idle > IDLE_STEPS or watch.step > self._scenario.steps_max:
            raise _Over
        ready = [i for i, request in self._waiting.items() if request.arrive < watch.step]
        made = [self._request(self._waiting.pop(index)) for index in ready]
        due = [event for event in self._aborts if event.step < watch.step]
        for event in due:
            self._aborts.remove(event)
            made.append(self._abort(event.request))
        return made

    def _request(self, request: Request) -> Any:
        from sglang.srt.managers.io_struct import TokenizedGenerateReqInput as Input
        from sglang.srt.sampling.sampling_params import SamplingParams

        assert self._scenario is not None
        # Of a request that surely comes to its length all slots are kept: none is retracted then.
        is_sure = self._scenario.free_blocks is None and request.stop_token is None
        params = SamplingParams(
            max_new_tokens=request.max_tokens,
            temperature=0.0,
            ignore_eos=is_sure,
            stop_token_ids=None if request.stop_token is None else [request.stop_token],
        )
        params.normalize(None)
        fields = _fields_of(Input)
        ids: Any = _prompt_of(request)
        if "array" in str(fields["input_ids"]):
            ids = array("q", ids)
        values: dict[str, Any] = dict.fromkeys(_required_of(Input)) | {
            "rid": request.name,
            "input_text": "",
            "input_ids": ids,
            "mm_inputs": None,
            "sampling_params": params,
            "return_logprob": False,
            "logprob_start_len": -1,
            "top_logprobs_num": 0,
            "token_ids_logprob": None,
            "stream": False,
        }
        return Input(**{key: value for key, value in values.items() if key in fields})

    def _give(self, output: Any, *args: Any, **kwargs: Any) -> None:
        """In the place of what sends it to clients."""
        note_output(self.watch, output)

    def _abort(self, name: str) -> Any:
        from sglang.srt.managers.io_struct import AbortReq

        if name not in self._ended:
            self.watch.counters["aborts_in_flight"] += 1
        return AbortReq(rid=name)

    def _deliver(self, batch: Any) -> None:
        for request in batch.reqs:
            # Of accepted drafts a request may have more than it asked for.
            given = getattr(request, "output_ids_through_stop", request.output_ids)
            self.delivered[request.rid] = tuple(int(token) for token in given)
            if request.finished() and request.rid not in self._ended:
                self._ended.add(request.rid)
                self.watch.counters["prefix_hits"] += request.cached_tokens > 0
                is_stopped = type(request.finished_reason).__name__ == "FINISH_MATCHED_TOKEN"
                is_inside = len(given) < len(request.output_ids)
                self.watch.counters["stops_inside_run"] += is_stopped and is_inside


def _prompt_of(request: Request) -> list[int]:
    """Tokens of the model."""
    return [token % VOCAB for token in request.prompt]
