"""The engine: started once on the virtual device, and run step by step."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from racegate.interpose.outcome import DeviceKind
from racegate.scenario.spec import Abort, Request, Scenario
from racegate.targets.common.inside.fields import name_of
from racegate.targets.common.inside.naming import named_buffers
from racegate.targets.common.inside.serve import NotTaken
from racegate.targets.common.inside.session import EngineSession
from racegate.targets.common.wire import Fidelity, Observed
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.inside import plants, standins
from racegate.targets.vllm.inside.conditions import (
    StepLimits,
    leave_blocks,
    throttle_prefills,
    use_grammars,
    watch_conditions,
    watch_penalties,
)
from racegate.targets.vllm.inside.graphs import asked_graphs, watch_replays
from racegate.targets.vllm.inside.hollow import Hollow, spoken
from racegate.targets.vllm.inside.kept import watch_ends, watch_kept, watch_outputs
from racegate.targets.vllm.inside.layers import watch_layers
from racegate.targets.vllm.inside.sampling import watch_sampling
from racegate.targets.vllm.inside.scripted.adapters import asked_adapters, with_adapter
from racegate.targets.vllm.inside.scripted.computed import Computed, give_weights
from racegate.targets.vllm.inside.scripted.images import (
    HollowImages,
    limit_encoding,
    prompt_with,
)
from racegate.targets.vllm.inside.scripted.model import Script, config
from racegate.targets.vllm.inside.scripted.params import params_of, penalties_of, refusals
from racegate.targets.vllm.inside.scripted.pauses import Pauses
from racegate.targets.vllm.inside.scripted.scripts import fit_release, script_of
from racegate.targets.vllm.inside.scripted.speculation import LAYERS_HEARD, OWN_MODELS, asked_drafts
from racegate.targets.vllm.inside.scripted.started import runner_of, state_block_of
from racegate.targets.vllm.inside.scripted.thinking import asked_budgets
from racegate.targets.vllm.inside.tiers import connectors
from racegate.targets.vllm.inside.tiers.pages import TaggedPages, pages_of
from racegate.targets.vllm.inside.tiers.states import TaggedStates, states_of
from racegate.targets.vllm.inside.truth.compare import Truth
from racegate.targets.vllm.inside.truth.values import judged_by
from racegate.targets.vllm.inside.watch import (
    RunnerWatch,
    watch_attention,
    watch_metadata,
    watch_rows,
    watch_scheduler,
    watch_zeroing,
)
from racegate.targets.vllm.inside.watch_steps import (
    groups_of,
    watch_adapters,
    watch_choice,
    watch_drafting,
    watch_masks,
    watch_previous,
)
from racegate.targets.vllm.wire import (
    AdapterMode,
    CaptureMode,
    ConnectorKind,
    ImageMode,
    PositionMode,
    PriorityMode,
    ProposerKind,
    SchedulingMode,
    StateMode,
    priority_of,
)

NOBODY = Scenario(name="nobody", title="what is captured is for no request", requests=())
BLOCKS_BYTES = 32 << 20
# Of a step. Where a release tells them apart, a batch has room for more than may be scheduled, as
# drafters whose own slots count need it: one limit cannot stand for the other.
TOKENS_SCHEDULED, TOKENS_BATCHED = 256, 272
_LIMIT = "max_num_scheduled_tokens"


def start(folder: Path, asked: Cell) -> Any:
    """vLLM's engine core and its worker, in this process. folder: for the model's files."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    (folder / "config.json").write_text(
        json.dumps(config(asked.layers, asked.positions, asked.vocabulary))
    )
    fit_release(asked)
    known = inspect.signature(EngineArgs.__init__).parameters
    arguments: dict[str, Any] = {
        "model": str(folder),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "speculative_config": asked_drafts(asked, folder) if asked.drafts else None,
        "enforce_eager": asked.graphs is CaptureMode.NONE,
        "max_model_len": 512,
        "max_num_seqs": 4,
        "max_num_batched_tokens": TOKENS_BATCHED if _LIMIT in known else TOKENS_SCHEDULED,
        _LIMIT: TOKENS_SCHEDULED,
        "dtype": "float32" if asked.fidelity is Fidelity.HOLLOW else "float16",
        "enable_prefix_caching": asked.mode is not StateMode.NONE,
        "mamba_cache_mode": asked.mode if asked.layers.is_recurrent else None,
        "kv_cache_memory_bytes": BLOCKS_BYTES,
        "async_scheduling": asked.scheduling is SchedulingMode.ASYNC,
        "attention_backend": "TRITON_ATTN",
        "gdn_prefill_backend": "triton",
        "compilation_config": {"custom_ops": ["none"], **asked_graphs(asked.graphs, asked.drafts)},
        "kernel_config": standins.plain_kernels(),
        "mm_processor_cache_gb": 0,
        **asked_budgets(asked.thinking),
        **asked_adapters(asked.adapters, folder),
        "kv_transfer_config": connectors.transfer_config(asked.connector),
        "scheduling_policy": "fcfs" if asked.priorities is PriorityMode.NONE else "priority",
    }
    given = {k: v for k, v in arguments.items() if k in known and v is not None}
    own = standins.own_arguments(asked.arguments, known)
    return LLMEngine.from_engine_args(EngineArgs(**given | own))


class Driver:
    """Runs scenarios on a started engine."""

    def __init__(self, engine: Any, session: EngineSession, asked: Cell) -> None:
        self._engine = engine
        self._core = engine.engine_core.engine_core
        self.runner = runner_of(engine)
        scheduler = self._core.scheduler
        cache = engine.vllm_config.cache_config
        moves = getattr(cache, "mamba_cache_mode", StateMode.NONE) != StateMode.NONE
        self.groups, numbers = groups_of(scheduler, moves=moves)
        self._draft_len, self._asked = asked.drafts, asked
        self.watch = RunnerWatch(
            session,
            state_block=state_block_of(scheduler),
            draft_len=asked.drafts,
            numbers=numbers,
        )
        self._session = session
        self._script: Script | None = None
        self._spoils = ""  # names of tensors that are made wrong in a run
        self._prompts: dict[str, int] = {}
        self._identities: dict[str, str] = {}  # by the names of requests
        self._limits = StepLimits(scheduler)
        session.listener.name_buffers(named_buffers(self.runner, plants.PACKAGE))
        self._computed: Computed | None = None
        self._rows = self._rows_of_batch()
        self._replace_models(session, asked)
        self._watch()

    def _replace_models(self, session: EngineSession, asked: Cell) -> None:
        known = self.runner.model_config
        size, vocab = known.get_hidden_size(), known.get_vocab_size()
        says = None if asked.fidelity is Fidelity.FULL else spoken
        hollow = Hollow(session, self.watch, hidden_size=size, vocab=vocab, spoken=says)
        if asked.fidelity is Fidelity.FULL:
            give_weights(self.runner.model)
            self._computed = Computed(self.runner.model)
        else:
            model = self.runner.get_model()
            hollow.replace(
                model,
                lambda *given: self.script.target(*given),
                name="model",
                tells=LAYERS_HEARD * (asked.drafter is ProposerKind.EAGLE3 and bool(asked.drafts)),
                touch=self._touched(asked),
            )
            if asked.positions is PositionMode.MROPE:
                model.get_mrope_input_positions = self._coordinates
        if self._draft_len and asked.drafter is not ProposerKind.NGRAM:
            drafter = getattr(self.runner, "drafter", None) or self.runner.speculator
            model = getattr(drafter.model, "unwrap", lambda: drafter.model)()
            hollow.replace(
                model,
                lambda *given: self.script.draft(*given),
                name="drafter",
                gives=2 if asked.drafter in OWN_MODELS else 1,
                hears=LAYERS_HEARD * (asked.drafter is ProposerKind.EAGLE3),
            )
        if asked.images is ImageMode.ENCODED:
            self._encode_images(HollowImages(session, self.watch, size=size))
        if asked.graphs is not CaptureMode.NONE:
            self._script = self._script_of(NOBODY, {}, lies=False)
            self.runner.capture_model()
            watch_replays(self.watch, self.runner, hollow)

    def _touched(self, asked: Cell) -> Callable[[Any, Any, Any], None] | None:
        """What a forward pass does to keys and values, or to states."""
        if asked.connector is not ConnectorKind.NONE:
            return self._tags().touch
        if asked.layers.is_gated_delta and asked.graphs is CaptureMode.NONE:
            states = states_of(self.runner)
            return TaggedStates(self._session, self.watch, states, self._rows).touch
        return None

    def _encode_images(self, encoder: HollowImages) -> None:
        encoder.replace(self.runner.get_model())
        drafter = getattr(self.runner, "drafter", None) or getattr(self.runner, "speculator", None)
        if drafter is not None and drafter.supports_mm_inputs:
            encoder.replace(drafter.model)
        limit_encoding(self._core.scheduler)

    def _tags(self) -> TaggedPages:
        """Of the pages that a connector moves."""
        return TaggedPages(
            self._session,
            self.watch,
            pages_of(self.runner),
            self._rows,
            lambda name, place: self.script.token_of(name, place),
        )

    def _coordinates(self, tokens: list[int], features: Any) -> tuple[Any, int]:
        """Positions of a prompt, with the scenario's images: int64 [3, tokens], and what is added
        to later places.
        """
        places, shift = self.script.coordinates_of(tokens)
        return torch.tensor(places, dtype=torch.int64).T, -shift

    @property
    def script(self) -> Script:
        assert self._script is not None
        return self._script

    def _watch(self) -> None:
        runner, watch = self.runner, self.watch
        execute = runner.execute_model
        self._note_kept = watch_kept(watch, runner, self._core.scheduler)

        def execute_model(scheduled: Any, *args: Any, **kwargs: Any) -> Any:
            watch.tokens = scheduled.total_num_scheduled_tokens
            if watch.tokens:
                watch.begin_step()
            scheduled.racegate_step = watch.step
            self._note_kept(scheduled)
            watch_choice(watch, self._core.scheduler, scheduled)
            watch_conditions(watch, self._core.scheduler, scheduled, self._prompts)
            connectors.watch_transfers(watch, scheduled)
            if watch.plant is not None and watch.step == plants.STEP:
                plants.plant(self._session.session, runner, scheduled, watch.plant)
            if self._spoils and watch.step == plants.STEP:
                plants.spoil(self._session.session, runner, scheduled, self._spoils)
            return execute(scheduled, *args, **kwargs)

        runner.execute_model = execute_model
        rows = self._rows
        watch_metadata(watch, rows)
        watch_attention(watch, rows)
        watch_previous(watch, runner, rows)
        watch_layers(watch, rows)
        watch_sampling(watch, rows)
        watch_masks(watch, runner, rows)
        if self._asked.adapters is AdapterMode.LORA:
            watch_adapters(watch, runner, rows)
        if self._draft_len:
            watch_drafting(watch, runner, rows)
        watch_scheduler(watch, self._core.scheduler)
        watch_outputs(watch, self._core.scheduler)
        watch_ends(watch, self._core.scheduler)
        cut = lambda one: self.script.cut(name_of(one), 0)  # noqa: E731
        connectors.fail_loads(watch, self._core.scheduler, self._asked.connector, cut)
        watch_zeroing(watch)
        watch_penalties(watch)
        use_grammars(self._core, watch, lambda: self._session.listener.turn)
        throttle_prefills(self._core, self._asked.throttle)
        if hasattr(runner, "input_batch"):
            watch_rows(watch, type(runner.input_batch))

    def _rows_of_batch(self) -> Callable[[], list[str]]:
        """Names of the requests in the rows of the batch that is being prepared."""
        runner = self.runner
        if hasattr(runner, "input_batch"):
            return lambda: [name_of(i) for i in runner.input_batch.req_ids]
        present: list[str] = []  # the second runner makes a batch per step and hands it on
        state = runner.model_state
        prepare = state.prepare_attn

        def prepare_attn(batch: Any, *args: Any, **kwargs: Any) -> Any:
            present[:] = [name_of(i) for i in batch.req_ids]
            return prepare(batch, *args, **kwargs)

        state.prepare_attn = prepare_attn
        return lambda: list(present)

    def plain(self) -> dict[str, tuple[int, ...]]:
        """Tokens of plain decoding, by request."""
        requests = self.script.scenario.requests
        return {request.name: self.script.plain(index) for index, request in enumerate(requests)}

    def truth(self) -> Truth:
        """All that was observed, beside what is true of it."""
        truth = Truth(self.script, self.groups, penalties_of, self._asked.scheduling)
        truth.read(judged_by(self.watch.inner, self._asked.drafter))
        return truth

    def counters(self) -> dict[str, int]:
        """What the run exercised."""
        return dict(self.watch.counters)

    def run(
        self,
        scenario: Scenario,
        *,
        plant: Observed | None = None,
        spoils: str = "",
        plain: dict[str, tuple[int, ...]] | None = None,
        is_plain: bool = False,
        on_turn: Callable[[int], None] | None = None,
    ) -> dict[str, tuple[int, ...]]:
        """Delivered tokens by request. plant, spoils: what is made wrong; the run ends behind it
        plain: what the model says in plain decoding, if it computes that; is_plain: of that run
        on_turn: called before each turn of the loop, with its number
        """
        self._spoils = spoils
        self._script = self._script_of(scenario, plain or {}, lies=plant is Observed.TOKENS)
        self._script.run_on(self._asked.runner)
        has_grammars = any(one.grammar_modulus for one in scenario.requests)
        drawn = frozenset(r.name for r in scenario.requests if self.script.draws(r.name))
        shifted = frozenset(r.name for r in scenario.requests if r.images)
        self.watch.begin(plant, has_grammars=has_grammars, drawn=drawn, shifted=shifted)
        self._prompts = {request.name: len(request.prompt) for request in scenario.requests}
        given_back = leave_blocks(self._core.scheduler, scenario)
        waiting = dict(enumerate(scenario.requests))
        aborts = [event for event in scenario.events if isinstance(event, Abort)]
        delivered: dict[str, tuple[int, ...]] = {request.name: () for request in scenario.requests}
        engine, watch = self._engine, self.watch
        pauses = Pauses(engine, watch.counters, scenario.pauses, given_back)
        for turn in range(scenario.steps_max):
            self._session.listener.begin_turn(turn)
            if on_turn is not None:
                on_turn(turn)
            for index in [i for i, request in waiting.items() if request.arrive <= watch.step]:
                self._add(index, waiting.pop(index))
            if not self._has_work():
                if not waiting:
                    break
                watch.begin_step()
                continue
            if (plant is not None or spoils) and watch.step > plants.STEP:
                break
            self._limits.set(scenario, watch.step + 1, is_plain=is_plain)
            for output in engine.step():
                delivered[name_of(output.request_id)] = tuple(output.outputs[0].token_ids)
            for event in [event for event in aborts if event.step < watch.step]:
                aborts.remove(event)
                self._abort(event.request, delivered)
            pauses.between_turns(watch.step)
        self._note_kept(None)
        watch.note_operations()
        return delivered

    def _script_of(
        self, scenario: Scenario, plain: dict[str, tuple[int, ...]], *, lies: bool
    ) -> Script:
        device = "cuda" if self._session.kind is DeviceKind.CUDA else "cpu"
        if self._computed is not None:
            self._computed.begin(lies=lies)
        return script_of(self._asked, scenario, plain, lies=lies, device=device)

    def _has_work(self) -> bool:
        """Whether a server would step: to tell a worker who ended, or to save blocks, as well."""
        is_asked = self._engine.has_unfinished_requests() or self._core.scheduler.has_requests()
        return is_asked or bool(self._core.batch_queue)

    def _add(self, index: int, request: Request) -> None:
        tokens = self.script.prompt(index)
        prompt: dict[str, Any] = {"prompt_token_ids": tokens}
        if self._asked.images is ImageMode.ENCODED:
            prompt = prompt_with(request, tokens)
        try:
            own = self.script.own(index)
            is_drafted, thinking = bool(self._draft_len), self._asked.thinking
            said = self.script.plain(index)
            params = params_of(request, own, said, is_drafted=is_drafted, thinking=thinking)
            adapter = with_adapter(self._asked.adapters, index, self.runner.model_config.model)
            priority = priority_of(index, self._asked.priorities)
            self._engine.add_request(request.name, prompt, params, **adapter, **priority)
        except refusals() as error:
            raise NotTaken(f"this release does not take request {request.name}: {error}") from error
        self._identities |= {name_of(one): one for one in self._core.scheduler.requests}

    def _abort(self, name: str, delivered: dict[str, tuple[int, ...]]) -> None:
        """The client gives up, maybe too late; what it got has to be how plain decoding begins."""
        if self.script.cut(name, len(delivered[name])):
            self._engine.abort_request([name])
            self.watch.counters["aborts_in_flight"] += 1
        elif name in self._identities:
            self._core.abort_requests([self._identities[name]])
            self.watch.counters["late_aborts"] += 1
