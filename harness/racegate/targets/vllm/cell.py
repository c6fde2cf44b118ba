"""Which vLLM is judged: a release, a runner, a cache mode, and whether its model computes."""

from __future__ import annotations

from racegate.scenario.spec import Abort, DraftLimit, Scenario
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.wire import Fidelity
from racegate.targets.vllm.wire import (
    DRAFTS_USUAL,
    REQUESTS_MAX,
    STEPS,
    TEMPERATURE_MAX,
    TOKENS_MAX,
    LayerMode,
    ModelRunner,
    StateMode,
)

UNSEEN = {
    Fidelity.HOLLOW: (
        "the forward pass: the model is scripted, recurrent states and attention caches are not "
        "computed (hollow fidelity)"
    ),
    Fidelity.FULL: "the drafter's forward pass: it is scripted",
}


class Cell(EngineCell, frozen=True, kw_only=True, tag="vllm", tag_field="of"):
    """A release of vLLM with one of its runners. fidelity: whether its model computes

    drafts: that a request has in a step at most, 0 for no speculation; layers: of the model
    """

    runner: ModelRunner
    mode: StateMode
    fidelity: Fidelity = Fidelity.HOLLOW
    drafts: int = DRAFTS_USUAL
    layers: LayerMode = LayerMode.HYBRID

    @property
    def settings(self) -> tuple[str, ...]:
        drafts = () if self.drafts == DRAFTS_USUAL else (f"drafts-{self.drafts}",)
        layers = () if self.layers is LayerMode.HYBRID else (self.layers.value,)
        return (self.runner, self.mode, *drafts, *layers)

    @property
    def title(self) -> str:
        return " ".join(("vLLM", self.place, *self.settings))

    @property
    def command(self) -> tuple[str, ...]:
        options = (f"--runner {self.runner}", f"--cache-mode {self.mode}")
        full = ("--fidelity full",) if self.fidelity is Fidelity.FULL else ()
        drafts = () if self.drafts == DRAFTS_USUAL else (f"--drafts {self.drafts}",)
        layers = () if self.layers is LayerMode.HYBRID else (f"--layers {self.layers}",)
        return ("vllm run", *self.place_options, *options, *full, *drafts, *layers)

    @property
    def unseen(self) -> str:
        return UNSEEN[self.fidelity]

    def cannot_run(self, scenario: Scenario) -> str:
        if scenario.expect.prefix_hits and self.mode is StateMode.NONE:
            return "it needs cached prefixes: --cache-mode align"
        return (
            cannot_run(scenario) or self._cannot_draft(scenario) or self._cannot_compute(scenario)
        )

    def _cannot_draft(self, scenario: Scenario) -> str:
        """Where what the scenario is about needs other drafts."""
        expect, most = scenario.expect, max((max(r.accepts) for r in scenario.requests), default=0)
        asks = expect.rejections or expect.full_accepts or expect.zero_draft_rows
        if asks and not self.drafts:
            return "it is about drafts, and there are none"
        if expect.full_accepts and most <= self.drafts:
            return f"no request of it accepts {self.drafts} drafts"
        if self.layers is LayerMode.ATTENTION:
            if expect.reorder_moves or expect.zeroed_blocks:
                return "rows are reordered and blocks zeroed for recurrent layers"
            if scenario.free_blocks is not None:
                return "its pool is counted for recurrent layers"
        if expect.preemptions and scenario.free_blocks is not None:
            needed = sum(request.arrive <= 1 for request in scenario.requests) * self._first_blocks
            if scenario.free_blocks < needed:
                return f"its pool has fewer blocks than {self.drafts} drafts need"
        return ""

    @property
    def _first_blocks(self) -> int:
        """Blocks of a request with a short prompt: states, attention's, and the drafter's."""
        return self.drafts + 1 + 1 + bool(self.drafts)

    def _cannot_compute(self, scenario: Scenario) -> str:
        """Where what the model says is not the likeliest token, or may not be it."""
        asks = [r.name for r in scenario.requests if r.temperature or r.grammar_modulus]
        if self.fidelity is Fidelity.HOLLOW or not asks:
            return ""
        return f"request {asks[0]} is sampled, or has a grammar: --fidelity hollow"


def cannot_run(scenario: Scenario) -> str:
    """Why a scenario cannot be run on vLLM here; empty if it can."""
    known = Abort | DraftLimit
    kinds = {type(event).__name__ for event in scenario.events if not isinstance(event, known)}
    if kinds:
        return f"it needs {', '.join(sorted(kinds)).lower()}"
    if len(scenario.requests) > REQUESTS_MAX:
        return f"it has more than {REQUESTS_MAX} requests"
    for request in scenario.requests:
        if request.temperature > TEMPERATURE_MAX:
            return f"request {request.name} is sampled at more than {TEMPERATURE_MAX}"
        if request.grammar_modulus and not all(step % request.grammar_modulus for step in STEPS):
            return f"request {request.name} has a grammar that forbids what the model says"
        if request.images:
            return f"request {request.name} has images"
        if request.stop_after is not None or request.stop_token is not None:
            return f"request {request.name} has a stop token"
        if len(request.prompt) + request.max_tokens > TOKENS_MAX:
            return f"request {request.name} is longer than {TOKENS_MAX} tokens"
    return ""
