"""Entries: a scenario file as it is written, before prompts and accept counts are made explicit."""

from __future__ import annotations

import msgspec

from racegate.scenario.expect import Expect
from racegate.scenario.settings import EngineSpec, ModelSpec
from racegate.scenario.spec import Event, Image, Pause
from racegate.scenario.strict import StrictStruct

SCHEMA_VERSION = 1


class RequestEntry(StrictStruct, frozen=True, kw_only=True):
    """A request as a file writes it.

    name: what events, holds and findings call it; arrive: the step in which it comes
    prompt: its tokens; prompt_len: how many, to have them drawn from the seed
    shares: an earlier request whose prompt it begins with; shares_tokens: how much of it
    max_tokens: that are delivered at most; stop_after: the delivered token that ends it
    stop_token: the token that ends it, as an EOS id does
    accepts: by draft round, 1 and the accepted drafts that the drafter aims at, again and again
    temperature: 0 is greedy; seed: of its sampling
    grammar_modulus: m > 0 forbids tokens congruent modulo m to the one before them
    grammar_turns: of a release's loop, for which the grammar is still being compiled
    images: parts of the prompt that stand in a grid, with a model that has an mrope_section
    """

    name: str
    arrive: int = 0
    prompt: tuple[int, ...] | None = None
    prompt_len: int | None = None
    shares: str | None = None
    shares_tokens: int = 0
    max_tokens: int = 8
    stop_after: int | None = None
    stop_token: int | None = None
    accepts: tuple[int, ...] | None = None
    temperature: float = 0.0
    seed: int | None = None
    grammar_modulus: int = 0
    grammar_turns: int = 0
    images: tuple[Image, ...] = ()


class RequestLogEntry(StrictStruct, frozen=True, kw_only=True):
    """Requests taken from a log with the columns TIMESTAMP, ContextTokens, GeneratedTokens.

    file: beside the scenario; rows: A:B of it, B not included
    scale: tokens of the log per token; step_ms: of the log per step
    """

    file: str
    rows: str
    scale: int = 32
    step_ms: int = 500


class ScenarioFile(StrictStruct, frozen=True, kw_only=True):
    """The file as written, before prompts and accept counts are made explicit.

    name: the file's, with - in the place of _; title: what happens, in a line
    origin: where it is known from; seed: of everything that is not written out
    steps_max: a run that takes more is cut off
    free_blocks: of a release's KV memory as a run begins, the others being taken; all without it
    pauses: when a client pauses a release
    model, engine: what differs from the defaults of racegate's own engine; no other target has it
    requests: what comes, in order; events: what interferes; expect: the least that must happen
    log: where requests come from instead of `requests`; the file calls it `trace`
    """

    schema: int
    name: str
    title: str
    origin: str = ""
    seed: int = 1
    steps_max: int = 200
    free_blocks: int | None = None
    pauses: tuple[Pause, ...] = ()
    model: ModelSpec = ModelSpec()
    engine: EngineSpec = EngineSpec()
    requests: tuple[RequestEntry, ...] = ()
    log: RequestLogEntry | None = msgspec.field(default=None, name="trace")
    events: tuple[Event, ...] = ()
    expect: Expect = Expect()
