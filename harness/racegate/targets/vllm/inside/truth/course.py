"""What each request has to do in each step, were everything right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from racegate.scenario.spec import Request, Scenario
from racegate.targets.vllm.wire import SchedulingMode, tag_of

NO_DRAFT = -1  # what runner V1 fills up drafts with that it looks up


class ScriptedModel(Protocol):
    """The scripted model, asked for one token at a time."""

    scenario: Scenario
    keeps_drafts: bool  # for a request that a step passes over; else zeros stand there

    def token_at(self, index: int, place: int) -> int | None:
        """The token of a request at a place, of its prompt or behind it; None if nobody knows."""
        ...

    def draft_at(self, owner: int, place: int) -> int | None:
        """What the drafter says for a place, behind a token of this owner."""
        ...

    def draws(self, name: str) -> bool:
        """Whether the drafts of a request are drawn."""
        ...

    def drawn_at(self, owner: int, place: int) -> tuple[int | None, ...]:
        """All that the drafter may say for a place, behind a token of this owner."""
        ...

    def looked_up(self, index: int, known: int) -> tuple[int | None, ...] | None:
        """Drafts of a request that has so many tokens; None: a model says them."""
        ...

    def coordinates_at(self, index: int, places: Sequence[int]) -> list[tuple[int, int, int]]:
        """The positions of tokens of a request, in three dimensions."""
        ...

    def owner(self, token: int) -> int:
        """Whose a token is: that of a prefix in common is the earlier request's."""
        ...


class EitherToken(tuple[int | None, ...]):
    """Values of which each is true; None among them, or no value at all: nobody knows."""

    __slots__ = ()

    @property
    def is_known(self) -> bool:
        """Whether somebody knows."""
        return bool(self) and None not in self


@dataclass(frozen=True, slots=True)
class RequestStep:
    """One request in one step.

    index: of the request in the scenario; start: tokens that were computed before
    tokens: that are run, of which the last `drafts` are drafts
    known: tokens that it had, of its prompt and behind it
    accepted: tokens that it gets, 0 of a chunk of its prompt
    rejected_before: drafts of the step before that were rejected, which the host does not know yet
    cut: drafts that were chosen, and are not run because none were found
    last: what it got in the step before; None if it was not run then
    blocks: of its memory, by group; is_new: it comes, or comes again, without drafts
    """

    request: str
    index: int
    start: int
    tokens: int
    drafts: int
    known: int
    accepted: int = 0
    rejected_before: int = 0
    cut: int = 0
    last: int | None = None
    blocks: tuple[tuple[int, ...], ...] = ()
    is_new: bool = False

    @property
    def end(self) -> int:
        """Behind the last token that is run."""
        return self.start + self.tokens

    @property
    def rejected(self) -> int:
        """Drafts that are not accepted."""
        return self.drafts - max(0, self.accepted - 1)

    @property
    def computed(self) -> int:
        """Tokens that are computed behind the step; the next token stands in this place."""
        return self.end - self.rejected


@dataclass(frozen=True, slots=True)
class _Standing:
    """A request between two steps. step: the last one in which it was run"""

    computed: int
    known: int
    step: int = 0
    accepted: int = 0
    rejected: int = 0


class Course:
    """Follows what the scheduler chose, step by step. most: tokens of one request; scheduling: in
    SYNC the host knows which tokens a step gave before it chooses the next one
    """

    def __init__(
        self,
        says: ScriptedModel,
        *,
        most: int,
        scheduling: SchedulingMode = SchedulingMode.ASYNC,
    ) -> None:
        self._says = says
        self._keeps_rows = scheduling is SchedulingMode.ASYNC
        self._most = most
        self._has_drafts, self._is_told = True, False
        requests = enumerate(says.scenario.requests)
        self._requests: dict[str, tuple[int, Request]] = {r.name: (i, r) for i, r in requests}
        self._standing: dict[str, _Standing] = {}
        self._drawn: dict[str, list[int]] = {}

    def note_drawn(self, name: str, drafts: list[int]) -> None:
        """Which drafts a request got for its next step, if chance had a say in it."""
        if self._says.draws(name):
            self._drawn[name] = drafts

    def request(self, name: str) -> Request:
        """A request of the scenario."""
        return self._requests[name][1]

    def step(
        self,
        step: int,
        chosen: Mapping[str, Any],
        *,
        has_drafts: bool = True,
        is_told: bool = False,
    ) -> dict[str, RequestStep]:
        """The rows of a step, by request. chosen: what the scheduler said of each

        has_drafts: the drafter was run in the step before; else zeros stand for its drafts
        is_told: the host had the output of the step before when it chose: it was scheduled
        synchronously, or the engine had been paused
        """
        self._has_drafts, self._is_told = has_drafts, is_told
        rows = {
            name: self._row(step, name, said)
            for name, said in chosen.items()
            if said["known"] is not None or name in self._standing  # others never came
        }
        for name, row in rows.items():
            known = row.known + row.accepted
            rejected = row.rejected + row.cut
            self._standing[name] = _Standing(row.computed, known, step, row.accepted, rejected)
        return rows

    def pass_over(self) -> None:
        """The runner is given a step in which nothing is run: no request was in the one before."""
        self._standing = {name: replace(one, step=0) for name, one in self._standing.items()}

    def unknown(self, rows: Sequence[RequestStep], chosen: Mapping[str, Any]) -> dict[str, int]:
        """Rows of requests that got tokens which the host does not know yet, by request, but for
        those that come again in the step behind it. chosen: for that step, as in `step`
        """
        again = {name for name, said in chosen.items() if said["known"] is not None}
        got = {row.request: at for at, row in enumerate(rows) if row.accepted}
        return {name: got[name] for name in got.keys() - again} if self._keeps_rows else {}

    def _cut(self, name: str, drafts: int) -> int:
        """Drafts that were not found, and that the runner does not run though they are chosen."""
        found = self._drawn.get(name, ())
        count = next((at for at, one in enumerate(found) if one == NO_DRAFT), drafts)
        return max(0, drafts - count)

    def _row(self, step: int, name: str, said: Mapping[str, Any]) -> RequestStep:
        if said["known"] is not None:  # it comes, or comes again
            standing = _Standing(said["computed"], said["known"])
        else:
            standing = self._standing[name]
        is_next = standing.step == step - 1 and standing.step > 0
        cut = self._cut(name, said["drafts"])
        row = RequestStep(
            request=name,
            index=self._requests[name][0],
            start=standing.computed,
            tokens=said["tokens"] - cut,
            drafts=said["drafts"] - cut,
            cut=cut,
            known=standing.known,
            rejected_before=standing.rejected if is_next and not self._is_told else 0,
            last=standing.accepted if is_next else None,
            blocks=tuple(map(tuple, said["blocks"])),
            is_new=said["known"] is not None,
        )
        return replace(row, accepted=self._accepted(row))

    def _accepted(self, row: RequestStep) -> int:
        """How many tokens it gets: those drafts that are right, and one more."""
        if row.end - row.drafts < row.known:
            return 0
        says = self._says
        for count in range(row.drafts):
            place = row.known + count
            if self._input_draft(row, place) != says.token_at(row.index, place):
                return count + 1
        return row.drafts + 1

    def inputs(self, row: RequestStep) -> list[int | None]:
        """The tokens that are run: those it has, then drafts."""
        says, own = self._says, min(row.end, row.known)
        tokens = [says.token_at(row.index, place) for place in range(row.start, own)]
        return tokens + [self._input_draft(row, place) for place in range(own, row.end)]

    def _input_draft(self, row: RequestStep, place: int) -> int | None:
        is_lost = row.last is None and not self._says.keeps_drafts
        if not self._has_drafts or row.is_new or is_lost:  # who begins may be padded with zeros
            return 0
        if (drawn := self._drawn.get(row.request)) is not None:
            number = place - row.known
            return drawn[number] if number < len(drawn) else None
        return self._says.draft_at(row.index, place)

    def state(self, row: RequestStep) -> int | None:
        """The tag of the recurrent state that it goes on from."""
        tokens = [self._says.token_at(row.index, place) for place in range(row.start)]
        known = [token for token in tokens if token is not None]
        return tag_of(known) if len(known) == len(tokens) else None

    def images(self, row: RequestStep) -> list[int]:
        """Which token of an image each token is that is run, from 1; 0 of text."""
        request = self.request(row.request)
        return [place_in_image(request, place) for place in range(row.start, row.end)]

    def hidden(self, row: RequestStep) -> list[list[int] | None]:
        """What the drafter's first pass is given of the model: position and token of all that is
        run, but for rejected drafts. Of three numbers of a position it is the first.
        """
        places = range(row.start, row.computed)
        positions = [first for first, *_ in self._says.coordinates_at(row.index, places)]
        placed = zip(positions, self.inputs(row), strict=False)
        return [None if token is None else [position, token] for position, token in placed]

    def before(self, row: RequestStep) -> list[int | None]:
        """The tokens that it had behind its prompt."""
        first = len(self.request(row.request).prompt)
        return [self._says.token_at(row.index, place) for place in range(first, row.known)]

    def outputs(self, row: RequestStep) -> list[int | None]:
        """The tokens that it gets."""
        places = range(row.known, row.known + row.accepted)
        return [self._says.token_at(row.index, place) for place in places]

    def next_token(self, row: RequestStep) -> EitherToken:
        """What the drafter goes on from: the last token that was sampled. Behind a chunk it is the
        prompt's next; some releases take the last one that the request has, and lose nothing but
        the quality of drafts.
        """
        places = [row.computed] if row.accepted else [row.computed, row.known - 1]
        return EitherToken([self._says.token_at(row.index, place) for place in places])

    def drafter_inputs(self, row: RequestStep) -> list[int | EitherToken | None]:
        """The drafter's tokens stand one place behind those that are run."""
        places = range(row.start + 1, row.computed)
        known = [self._says.token_at(row.index, place) for place in places]
        return [*known, self.next_token(row)]

    def draft(self, row: RequestStep, number: int) -> EitherToken:
        """The draft of this number, from 1 on, that is made in the step; nobody knows what comes
        of a pass behind the last place that a request may have, or what is looked up of a chunk.
        """
        found = self._says.looked_up(row.index, row.known + row.accepted)
        if found is not None:
            return EitherToken(found[number - 1 : number] if row.accepted else ())
        if row.computed + number - 2 >= self._most:
            return EitherToken()
        owners = [self._says.owner(one) for one in self.next_token(row) if one is not None]
        places = [self._says.drawn_at(one, row.computed + number) for one in owners]
        return EitherToken([token for each in places for token in each])


def place_in_image(request: Request, place: int) -> int:
    """Which token of an image stands in a place of a request, from 1; 0 of text."""
    for image in request.images:
        if 0 <= place - image.start < image.tokens:
            return place - image.start + 1
    return 0
