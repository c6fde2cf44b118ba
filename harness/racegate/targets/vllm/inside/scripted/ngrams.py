"""A scripted model whose drafts are looked up: what followed a request's last tokens before."""

from __future__ import annotations

from collections.abc import Sequence

from racegate.scenario.spec import Scenario
from racegate.targets.vllm.inside.scripted.model import Script
from racegate.targets.vllm.inside.truth.course import NO_DRAFT
from racegate.targets.vllm.wire import NGRAM_MAX, NGRAM_MIN, ModelRunner


class NgramScript(Script):
    """What is looked up, as each runner does: V1 takes the earliest of the longest matches, and
    fills up with no draft; V2 takes the latest one, and fills up with the last token.
    """

    def __init__(
        self, scenario: Scenario, *, draft_len: int, runner: ModelRunner, lies: bool, device: str
    ) -> None:
        super().__init__(scenario, draft_len=draft_len, lies=lies, device=device)
        self._draft_len = draft_len
        self._is_first = runner is ModelRunner.V1

    def draws(self, name: str) -> bool:
        """No draft is scripted: verification is judged by those that were found."""
        return True

    def looked_up(self, index: int, known: int) -> tuple[int | None, ...]:
        """Drafts of a request that has so many tokens."""
        tokens = [self.token_at(index, place) for place in range(known)]
        found = follow(tokens, self._draft_len, is_first=self._is_first)
        filling = NO_DRAFT if self._is_first else tokens[-1]
        return (*found, *[filling] * (self._draft_len - len(found)))


def follow(tokens: Sequence[int | None], most: int, *, is_first: bool) -> list[int | None]:
    """What followed the longest run of last tokens that was there before; empty if none was.

    most: tokens that are returned at most; is_first: of equal runs the first one is taken
    """
    for count in range(min(NGRAM_MAX, len(tokens) - 1), NGRAM_MIN - 1, -1):
        last = tokens[len(tokens) - count :]
        starts = range(len(tokens) - count)
        for start in starts if is_first else reversed(starts):
            if tokens[start : start + count] == last:
                return list(tokens[start + count : start + count + most])
    return []
