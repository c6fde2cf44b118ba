"""A request as the scheduler knows it (DEFINITION section 5)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from racegate.scenario.spec import Request
from racegate_reference.blocks import Key, Tables


@dataclass(slots=True, eq=False)
class Tracked:
    """The counters and blocks of a request.

    in_flight, stale: unprocessed frames of this and of earlier incarnations.
    planned: the last step whose plan holds this incarnation, None before the first.
    rounds: steps planned, over all incarnations, that were not prefill chunks.
    """

    request: Request
    delivered: list[int] = field(default_factory=list)
    tables: Tables = field(default_factory=Tables)
    computed: int = 0
    placeholders: int = 0
    drafts_next: int = 0
    prefill_len: int = 0
    incarnation: int = 0
    in_flight: int = 0
    stale: int = 0
    planned: int | None = None
    rounds: int = 0
    outcome: str | None = None

    @property
    def name(self) -> str:
        return self.request.name

    @property
    def tokens(self) -> tuple[int, ...]:
        """Prompt and delivered tokens."""
        return self.request.prompt + tuple(self.delivered)

    @property
    def key(self) -> Key:
        """The tokens as keys have them: one of an image with its grid, and its place there."""
        elements: list[Hashable] = list(self.tokens)
        for image in self.request.images:
            for place in range(image.tokens):
                index = image.start + place
                elements[index] = (elements[index], image.grid, place)
        return tuple(elements)

    @property
    def length(self) -> int:
        """The number of tokens."""
        return len(self.request.prompt) + len(self.delivered)

    @property
    def decoding(self) -> bool:
        """In decode phase."""
        return self.computed >= self.prefill_len
