"""The scheduler's view of a request: counters that run ahead of the device and are repaired by its
outputs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from racegate.scenario.spec import Request


class Status(StrEnum):
    """Where a request is in its life."""

    PENDING = "pending"  # has not arrived
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Finish(StrEnum):
    """How it ended, if it did."""

    MAX_TOKENS = "max_tokens"
    STOP = "stop"
    ABORT = "abort"
    UNFINISHED = "unfinished"


@dataclass(slots=True)
class Tracked:
    """Counters of one request. docs/mechanism.md#counters; DEFINITION section 5.

    computed: tokens whose state exists once all scheduled steps ran, drafts counted as accepted
    settled: the exact part of it, without frames in flight
    placeholders: output tokens promised by scheduled, unprocessed steps
    stale: frames in flight of an earlier incarnation; they deliver tokens and change no counter
    fresh_blocks, fresh_state_blocks: blocks taken from the free lists for the plan in the making
    loaded: tokens of the saved prefix that the plan in the making loads
    """

    request: Request
    tokens: list[int]
    status: Status = Status.PENDING
    finish: Finish = Finish.UNFINISHED
    incarnation: int = 0
    computed: int = 0
    settled: int = 0
    placeholders: int = 0
    drafts_next: int = 0
    in_flight: int = 0
    stale: int = 0
    prefill_len: int = 0
    planned_step: int = -2
    blocks: list[int] = field(default_factory=list)
    state_blocks: list[int] = field(default_factory=list)
    fresh_blocks: list[int] = field(default_factory=list)
    fresh_state_blocks: list[int] = field(default_factory=list)
    loaded: int = 0

    @property
    def name(self) -> str:
        """The request's."""
        return self.request.name

    @property
    def delivered(self) -> int:
        """Tokens behind the prompt."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def is_decode(self) -> bool:
        """Whether all that was known at its admission is scheduled."""
        return self.computed >= self.prefill_len

    def deliver(self, tokens: list[int]) -> int:
        """Appends tokens until the request's end; returns how many were taken and sets `finish` at
        the end.
        """
        request = self.request
        for taken, token in enumerate(tokens, start=1):
            self.tokens.append(token)
            if self.delivered == request.stop_after or token == request.stop_token:
                self.finish = Finish.STOP
            elif self.delivered == request.max_tokens:
                self.finish = Finish.MAX_TOKENS
            if self.finish is not Finish.UNFINISHED:
                return taken
        return len(tokens)
