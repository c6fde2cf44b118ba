"""Which vLLM is judged: a release, a runner, a cache mode, and whether its model computes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from shlex import quote

import msgspec

from racegate.scenario.spec import Abort, Budget, DraftLimit, Scenario
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.wire import TEMPERATURE_ONE, Fidelity
from racegate.targets.vllm.wire import (
    DRAFTS_USUAL,
    REQUESTS_MAX,
    STEPS,
    STOP_END,
    STOP_MIN,
    TEMPERATURE_MAX,
    TOKENS_MAX,
    AdapterMode,
    CaptureMode,
    ConnectorKind,
    DraftMode,
    DraftSchedule,
    ImageMode,
    LayerMode,
    ModelRunner,
    PositionMode,
    PriorityMode,
    ProposerKind,
    SchedulingMode,
    StateMode,
    ThinkingMode,
    VocabularyMode,
)

UNSEEN = {
    Fidelity.HOLLOW: (
        "the forward pass: the model is scripted, recurrent states and attention caches are not "
        "computed (hollow fidelity)"
    ),
    Fidelity.FULL: "the drafter's forward pass: it is scripted",
}


BLOCK_TOKENS = 80  # of attention, in a model with recurrent states
# What a run can be expected to exercise, by what it takes.
_OF_DRAFTS = ("rejections", "full_accepts", "zero_draft_rows", "mrope_drifts")
_OF_MANY = ("rejections", "full_accepts")
_MOVES = ("condense_moves", "reorder_moves")
_OVERLAPS = ("overlapped_ops", "aborts_in_flight", "pauses_in_flight", "discarded_rows")
_SHARED = ("prefix_hits",)
_OF_STATES = ("reorder_moves", "zeroed_blocks")
# What is usual is not named: by field, the option of the command line and what a file's name has.
_NAMED = {
    "drafts": ("--drafts", "drafts-"),
    "drafter": ("--drafter", ""),
    "draft_mode": ("--draft-mode", ""),
    "draft_schedule": ("--draft-schedule", ""),
    "scheduling": ("--scheduling", ""),
    "graphs": ("--graphs", "graphs-"),
    "layers": ("--layers", ""),
    "positions": ("--positions", ""),
    "images": ("--images", "images-"),
    "thinking": ("--thinking", "thinking-"),
    "adapters": ("--adapters", ""),
    "connector": ("--connector", "connector-"),
    "throttle": ("--throttle", "throttle-"),
    "priorities": ("--priorities", "priorities-"),
    "vocabulary": ("--vocabulary", "vocabulary-"),
}
_UNNAMED = re.compile(r"[^\w.]+")  # what no name of a file has


class Cell(EngineCell, frozen=True, kw_only=True, tag="vllm", tag_field="of"):
    """A release of vLLM with one of its runners. fidelity: whether its model computes

    drafts: that a request has in a step at most, 0 for no speculation; drafter, draft_mode: what
    proposes them, and how; draft_schedule: how many; scheduling: before or after the last output is
    known; graphs: what is captured; layers, positions: of the model; images: what is made of
    them; thinking: whether that is bounded; adapters: whether requests have some; connector: to the
    host's memory; throttle: prefills wait for every so manieth step, 0 if they do not; priorities:
    of requests; vocabulary: how many tokens there are
    arguments: of the release's own EngineArgs, each as NAME=JSON
    """

    runner: ModelRunner
    mode: StateMode
    fidelity: Fidelity = Fidelity.HOLLOW
    drafts: int = DRAFTS_USUAL
    drafter: ProposerKind = ProposerKind.MTP
    draft_mode: DraftMode = DraftMode.GREEDY
    draft_schedule: DraftSchedule = DraftSchedule.FIXED
    scheduling: SchedulingMode = SchedulingMode.ASYNC
    graphs: CaptureMode = CaptureMode.NONE
    layers: LayerMode = LayerMode.HYBRID
    positions: PositionMode = PositionMode.TEXT
    images: ImageMode = ImageMode.POSITIONS
    thinking: ThinkingMode = ThinkingMode.NONE
    adapters: AdapterMode = AdapterMode.NONE
    connector: ConnectorKind = ConnectorKind.NONE
    throttle: int = 0
    priorities: PriorityMode = PriorityMode.NONE
    vocabulary: VocabularyMode = VocabularyMode.USUAL
    arguments: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        named = (f"{_NAMED[field][1]}{value}" for field, value in self._unusual())
        own = (_UNNAMED.sub("-", text).strip("-") for text in self.arguments)
        return (self.runner, self.mode, *named, *own)

    @property
    def title(self) -> str:
        return " ".join(("vLLM", self.place, *self.settings))

    @property
    def command(self) -> tuple[str, ...]:
        options = (f"--runner {self.runner}", f"--cache-mode {self.mode}")
        full = ("--fidelity full",) if self.fidelity is Fidelity.FULL else ()
        named = (f"{_NAMED[field][0]} {value}" for field, value in self._unusual())
        own = (f"--engine-arg {quote(text)}" for text in self.arguments)
        return ("vllm run", *self.place_options, *options, *full, *named, *own)

    @property
    def takes_images(self) -> bool:
        """Whether a request may have images."""
        return self.positions is PositionMode.MROPE or self.images is ImageMode.ENCODED

    def _unusual(self) -> Iterator[tuple[str, object]]:
        """Settings that are not as usual, by field."""
        usual = Cell(release="", runner=self.runner, mode=self.mode)
        for field in _NAMED:
            if (value := getattr(self, field)) != getattr(usual, field):
                yield field, value

    @property
    def unseen(self) -> str:
        return UNSEEN[self.fidelity]

    def impossible(self, scenario: Scenario) -> dict[str, str]:
        most = max((max(r.accepts) for r in scenario.requests), default=0)
        finds = self.drafter is not ProposerKind.NGRAM or repeats(scenario)
        rules = (
            (not self.drafts, _OF_DRAFTS, "there are no drafts"),
            (not finds, _OF_DRAFTS, "no text in it repeats"),
            (most <= self.drafts, ("full_accepts",), f"no request accepts {self.drafts} drafts"),
            (
                self.draft_schedule is DraftSchedule.BY_BATCH,
                _OF_MANY,
                "large batches have fewer drafts",
            ),
            (self.runner is ModelRunner.V2, _MOVES, "runner V2 leaves requests in their rows"),
            (not self.layers.is_recurrent, _OF_STATES, "there are no recurrent layers"),
            (
                self.adapters is AdapterMode.LORA,
                _SHARED,
                "who has another adapter shares no prefix",
            ),
            (self.scheduling is SchedulingMode.SYNC, _OVERLAPS, "no two steps are in flight"),
        )
        expected = msgspec.structs.asdict(scenario.expect)
        return {
            name: reason
            for is_so, names, reason in reversed(rules)
            for name in names
            if is_so and expected[name]
        }

    def cannot_run(self, scenario: Scenario) -> str:
        asked = {key for key, least in msgspec.structs.asdict(scenario.expect).items() if least}
        beyond = self.impossible(scenario)
        if asked and asked <= beyond.keys():
            return next(f"it is about {name}: {reason}" for name, reason in beyond.items())
        return (
            self._cannot_offer(scenario) or cannot_run(scenario) or self._cannot_compute(scenario)
        )

    def _cannot_offer(self, scenario: Scenario) -> str:
        """Where what the scenario is about needs other settings."""
        expect, free = scenario.expect, scenario.free_blocks
        if self.adapters is AdapterMode.LORA and self.fidelity is Fidelity.FULL:
            return "what an adapter adds is not computed: --fidelity hollow"
        if self.layers is LayerMode.MAMBA2 and self.fidelity is Fidelity.FULL:
            return "layers of Mamba2 are not computed: --fidelity hollow"
        if (expect.saves or expect.loads) and self.connector is ConnectorKind.NONE:
            return "it needs a tier in the host's memory: --connector simple"
        if expect.loads and (self.connector is ConnectorKind.FAILING) != bool(expect.lost_loads):
            kind = "failing" if expect.lost_loads else "simple"
            return f"its loads fail, or have to end: --connector {kind}"
        if self.connector is not ConnectorKind.NONE and self.mode is StateMode.NONE:
            return "a connector needs cached prefixes: --cache-mode align"
        if self.connector is not ConnectorKind.NONE and self.graphs is not CaptureMode.NONE:
            return "tags of pages are not read in graphs: --graphs none"
        if expect.prefix_hits and self.mode is StateMode.NONE:
            return "it needs cached prefixes: --cache-mode align"
        is_drawn = self.draft_mode is DraftMode.PROBABILISTIC and self.drafts
        if is_drawn and any(one.temperature == TEMPERATURE_ONE for one in scenario.requests):
            return "its drafts are drawn at a temperature of 1, at which they are not certain"
        if expect.drawn_drafts and not is_drawn:
            return "it needs drafts that are drawn: --draft-mode probabilistic"
        if self.graphs is CaptureMode.PIECEWISE and self.drafts and self.runner is ModelRunner.V2:
            return "passes of V2's drafter in graphs of pieces are not observed: --drafts 0"
        has_images = any(request.images for request in scenario.requests)
        if expect.encoded_images and self.images is ImageMode.POSITIONS:
            return "it has images that are encoded: --images encoded"
        has_dimensions = self.positions is PositionMode.MROPE
        if has_images and not has_dimensions and self.images is ImageMode.POSITIONS:
            return "it has images: --positions mrope"
        if has_images and has_dimensions and self.runner is ModelRunner.V2 and self.drafts:
            return "the drafter of runner V2 has positions of one number: --drafts 0"
        is_timed = expect.rejections and (expect.reorder_moves or expect.preemptions)
        if is_timed and "rejections" in self.impossible(scenario):
            return "what happens in it is timed by drafts, and there are none"
        if (expect.graph_replays or expect.padded_rows) and self.graphs is CaptureMode.NONE:
            return "it needs captured graphs: --graphs full"
        if free is not None and not self.layers.is_recurrent:
            return "its pool is counted for recurrent layers"
        if free is not None and expect.preemptions:
            needed = sum(request.arrive <= 1 for request in scenario.requests) * self._first_blocks
            if free < needed:
                return f"its pool has fewer blocks than {self.drafts} drafts need"
        if free is not None and expect.loads and free < self._blocks_of_longest(scenario):
            return f"its pool has fewer blocks than {self.drafts} drafts need"
        return ""

    def _blocks_of_longest(self, scenario: Scenario) -> int:
        """Blocks of the longest prompt: states, attention's, and the drafter's."""
        longest = max(len(request.prompt) for request in scenario.requests)
        return self.drafts + 1 + -(-longest // BLOCK_TOKENS) * (1 + bool(self.drafts))

    @property
    def _first_blocks(self) -> int:
        """Blocks of a request with a short prompt: states, attention's, and the drafter's."""
        return self.drafts + 1 + 1 + bool(self.drafts)

    def _cannot_compute(self, scenario: Scenario) -> str:
        """Where what the model says is not the likeliest token, or may not be it."""
        if self.fidelity is Fidelity.HOLLOW:
            return ""
        for request in scenario.requests:
            if request.temperature or request.grammar_modulus:
                return f"request {request.name} is sampled, or has a grammar: --fidelity hollow"
            if request.stop_after is not None:
                return f"nobody knows which token ends request {request.name}: --fidelity hollow"
        return ""


def repeats(scenario: Scenario) -> bool:
    """Whether a prompt has two tokens that follow each other as in what is said behind it, so that
    they may be looked up there.
    """
    pairs = (pair for request in scenario.requests for pair in pairwise(request.prompt))
    return any((second - first) % sum(STEPS) == STEPS[0] for first, second in pairs)


def cannot_run(scenario: Scenario) -> str:
    """Why a scenario cannot be run on vLLM here; empty if it can."""
    known = Abort | Budget | DraftLimit
    kinds = {type(event).__name__ for event in scenario.events if not isinstance(event, known)}
    if kinds:
        return f"it needs {', '.join(sorted(kinds)).lower()}"
    if any(isinstance(event, Budget) and not event.tokens for event in scenario.events):
        return "a step of it may schedule nothing, and would come again"
    if len(scenario.requests) > REQUESTS_MAX:
        return f"it has more than {REQUESTS_MAX} requests"
    for request in scenario.requests:
        if request.temperature > TEMPERATURE_MAX and request.temperature != TEMPERATURE_ONE:
            return f"request {request.name} is sampled at more than {TEMPERATURE_MAX}, and not at 1"
        if request.grammar_modulus and not all(step % request.grammar_modulus for step in STEPS):
            return f"request {request.name} has a grammar that forbids what the model says"
        if request.stop_token is not None:
            return f"request {request.name} has a stop token: only stop_after is known here"
        if request.stop_after is not None and not STOP_MIN <= request.stop_after < STOP_END:
            return f"request {request.name} is stopped before its {STOP_MIN}th token, or late"
        if len(request.prompt) + request.max_tokens > TOKENS_MAX:
            return f"request {request.name} is longer than {TOKENS_MAX} tokens"
    return ""
