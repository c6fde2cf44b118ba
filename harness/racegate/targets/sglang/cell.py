"""Which scheduler is judged: a release, a model, and the repairs that are switched off in it."""

from __future__ import annotations

from racegate.scenario.spec import Abort, Scenario
from racegate.targets.common.cell import EngineCell
from racegate.targets.sglang.wire import REQUESTS_MAX, TOKENS_MAX, ModelKind, Repair

UNSEEN = (
    "kernels that are compiled: plain forms of them run, in float32; mixed experts are one dense "
    "layer; CUDA graphs are off"
)
_OF_DRAFTS = ("rejections", "full_rejects", "full_accepts", "stops_inside_run")


class SchedulerCell(EngineCell, frozen=True, kw_only=True, tag="sglang", tag_field="of"):
    """A release of SGLang. without: repairs that are switched off"""

    model: ModelKind
    without: tuple[Repair, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        return (self.model, *(f"without-{repair.value}" for repair in self.without))

    @property
    def title(self) -> str:
        without = "".join(f" without {repair.value}" for repair in self.without)
        return f"SGLang {self.place} {self.model}{without}"

    @property
    def command(self) -> tuple[str, ...]:
        without = tuple(f"--without {repair.value}" for repair in self.without)
        return ("sglang run", *self.place_options, f"--model {self.model}", *without)

    @property
    def unseen(self) -> str:
        return UNSEEN if self.model is ModelKind.MTP else f"{UNSEEN}, and nothing is drafted"

    def cannot_run(self, scenario: Scenario) -> str:
        kinds = {type(event).__name__ for event in scenario.events if not isinstance(event, Abort)}
        if kinds:
            return f"it needs {', '.join(sorted(kinds)).lower()}"
        if scenario.pauses:
            return "it pauses the engine, which is done for vLLM alone"
        if self.model is not ModelKind.MTP:
            missing = [name for name in _OF_DRAFTS if getattr(scenario.expect, name)]
            if missing:
                return f"it expects {', '.join(missing)}, and nothing is drafted (--model mtp does)"
        if len(scenario.requests) > REQUESTS_MAX:
            return f"it has more than {REQUESTS_MAX} requests"
        longest = max(len(one.prompt) + one.max_tokens for one in scenario.requests)
        if scenario.free_blocks is not None and scenario.free_blocks < longest:
            return f"its pool has fewer slots than the longest request has tokens, {longest}"
        for request in scenario.requests:
            if request.temperature or request.grammar_modulus:
                return f"request {request.name} samples at random or under a grammar"
            if request.images:
                return f"request {request.name} has images"
            if request.stop_token is not None:
                return f"request {request.name} has a stop token: only stop_after is known here"
            if len(request.prompt) + request.max_tokens > TOKENS_MAX:
                return f"request {request.name} is longer than {TOKENS_MAX} tokens"
        return ""
