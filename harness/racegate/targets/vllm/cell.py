"""Which vLLM is judged: a release, a runner, a cache mode, and whether its model computes."""

from __future__ import annotations

from racegate.scenario.spec import Abort, DraftLimit, Scenario
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.wire import Fidelity
from racegate.targets.vllm.wire import (
    REQUESTS_MAX,
    STEPS,
    TEMPERATURE_MAX,
    TOKENS_MAX,
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
    """A release of vLLM with one of its runners. fidelity: whether its model computes"""

    runner: ModelRunner
    mode: StateMode
    fidelity: Fidelity = Fidelity.HOLLOW

    @property
    def settings(self) -> tuple[str, ...]:
        return (self.runner, self.mode)

    @property
    def title(self) -> str:
        return f"vLLM {self.place} {self.runner} {self.mode}"

    @property
    def command(self) -> tuple[str, ...]:
        options = (f"--runner {self.runner}", f"--cache-mode {self.mode}")
        full = ("--fidelity full",) if self.fidelity is Fidelity.FULL else ()
        return ("vllm run", *self.place_options, *options, *full)

    @property
    def unseen(self) -> str:
        return UNSEEN[self.fidelity]

    def cannot_run(self, scenario: Scenario) -> str:
        if scenario.expect.prefix_hits and self.mode is StateMode.NONE:
            return "it needs cached prefixes: --cache-mode align"
        return cannot_run(scenario) or self._cannot_compute(scenario)

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
