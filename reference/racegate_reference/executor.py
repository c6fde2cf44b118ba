"""Executing a step: inputs, verification and drafts (DEFINITION sections 3, 4 and 7)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from racegate.scenario.settings import DrafterKind, EngineSpec
from racegate.scenario.spec import OwnScenario, Request
from racegate_reference.blocks import cdiv
from racegate_reference.drafting import Drafter, Drafts, Sampled, make_drafter
from racegate_reference.frames import Entry, Result
from racegate_reference.model import Model
from racegate_reference.paths import EmittedPath, Path, Paths
from racegate_reference.sampling import verify

NO_DRAFTS = Drafts(())


@dataclass(slots=True)
class Carried:
    """What one incarnation of a request carries from step to step.

    final: F, tokens whose state is final
    accepted_last: a of the last step (1 if it did not sample)
    column: of the running state where it moves (align, offload), None before the first step.
    drafts: of the last step, with what they were drawn from.
    """

    incarnation: int
    final: int
    accepted_last: int = 1
    column: int | None = None
    drafts: Drafts = NO_DRAFTS


class RequestExecutor:
    """Executes the entries of one request."""

    def __init__(self, model: Model, engine: EngineSpec, request: Request, path: Path) -> None:
        self.path = path
        self.drafter: Drafter | None = make_drafter(model, engine, self.path)
        self._engine = engine
        self._request = request
        self._live: Carried | None = None

    def execute(self, entry: Entry) -> Result:
        """Runs the entry; only what is kept is computed."""
        live = self._live_of(entry)
        start, drafts = live.final, live.drafts.tokens[: entry.drafts]
        known = start + entry.tokens - entry.drafts
        selecting = self._selecting(live, end=start + entry.tokens)
        emitted: tuple[int, ...] = ()
        proposed = NO_DRAFTS
        end, target = known, self._target(entry)
        if not entry.chunk:
            emitted = verify(
                [draft for draft in drafts if draft >= 0],
                self._draws(entry, live.drafts, known=known),
            )
            end = known - 1 + len(emitted)
            proposed = self._propose(Sampled(position=end - 1, tokens=emitted, target=target))
        live.final, live.accepted_last, live.drafts = end, max(1, len(emitted)), proposed
        return Result(
            entry=entry,
            start=start,
            end=end,
            selecting=selecting,
            inputs=self.path.tokens(start, known) + tuple(max(0, draft) for draft in drafts),
            emitted=emitted,
            target=target,
            proposed=proposed.tokens,
            weights=proposed.weights,
            margin=min(
                [proposed.margin, *(self.path.margin(known + i) for i in range(len(emitted)))]
            ),
        )

    def _draws(self, entry: Entry, drafts: Drafts, *, known: int) -> Callable[[int], int]:
        """What draws the token so many places behind the last committed one."""
        path = self.path
        if not isinstance(path, EmittedPath):
            return lambda place: path.token(known + place)

        def emit(place: int) -> int:
            if place == entry.drafts:
                return path.emit(None, None)
            return path.emit(drafts.tokens[place], drafts.weights[place])

        return emit

    def _live_of(self, entry: Entry) -> Carried:
        """The incarnation's state; a new one starts where the entry does, which is exact then."""
        if self._live is None or self._live.incarnation != entry.incarnation:
            self._live = Carried(incarnation=entry.incarnation, final=entry.computed)
        return self._live

    def _selecting(self, live: Carried, *, end: int) -> int:
        """The count that selects the live state; moving it to another column makes it 1."""
        if not self._engine.cache_mode.splits_chunks:
            return live.accepted_last
        before, live.column = live.column, cdiv(end, self._engine.state_interval) - 1
        return live.accepted_last if before == live.column else 1

    def _target(self, entry: Entry) -> int:
        if entry.chunk or self._engine.drafter is not DrafterKind.SCRIPTED:
            return 1
        accepts = self._request.accepts
        return min(accepts[entry.round % len(accepts)], 1 + self._engine.draft_len_max)

    def _propose(self, sampled: Sampled) -> Drafts:
        return NO_DRAFTS if self.drafter is None else self.drafter.propose(sampled)


def _path_of(scenario: OwnScenario, request: Request, paths: Paths) -> Path:
    """What is emitted where drawn drafts decide it, else plain decoding."""
    if scenario.engine.draws_drafts and request.temperature > 0.0:
        return paths.emitted_path(scenario.model, request)
    return paths.path(scenario.model, request)


class Executor:
    """Executes plans, one request after another."""

    def __init__(self, scenario: OwnScenario, paths: Paths) -> None:
        model, engine = paths.model(scenario.model), scenario.engine
        self.requests = {
            request.name: RequestExecutor(
                model, engine, request, _path_of(scenario, request, paths)
            )
            for request in scenario.requests
        }
        self.margin = math.inf

    def execute(self, entries: tuple[Entry, ...]) -> tuple[Result, ...]:
        """The results of a plan, in its order."""
        results = tuple(self.requests[entry.request].execute(entry) for entry in entries)
        self.margin = min([self.margin, *(result.margin for result in results)])
        return results
