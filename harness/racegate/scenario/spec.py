"""Scenario: what happens in a run, as frozen data, loaded strictly from TOML.

A scenario says which requests arrive when, how many drafts are accepted and which events interfere,
for every target. How our own engine is configured stands beside it, in an `OwnScenario`. Neither
says anything about the order of device work: that is a `Schedule`.
Semantics of every field: reference/DEFINITION.md.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from racegate.scenario.errors import BadInputError
from racegate.scenario.expect import Expect
from racegate.scenario.settings import EngineSpec, ModelSpec
from racegate.scenario.strict import StrictStruct

# A hostile or mistyped file must not exhaust the machine: a run's memory and time are bounded by
# these.
STEPS_MAX = 20_000
REQUESTS_MAX = 2_000
EVENTS_MAX = 2_000
TOKENS_MAX = 1 << 17
DRAFT_LEN_MAX = 8


class ScenarioError(BadInputError):
    """A scenario that cannot be used: names the file, the path in the file and the reason."""

    def __init__(self, source: str, path: str, reason: str) -> None:
        super().__init__(f"{source}: {path}: {reason}")
        self.source = source
        self.path = path
        self.reason = reason


class Image(StrictStruct, frozen=True, kw_only=True):
    """A part of a prompt whose tokens stand in a grid. start: the first one's place in the prompt
    grid: frames, rows and columns
    """

    start: int
    grid: tuple[int, int, int]

    @property
    def tokens(self) -> int:
        """How many tokens of the prompt it takes."""
        frames, rows, columns = self.grid
        return frames * rows * columns


class Request(StrictStruct, frozen=True, kw_only=True):
    """One request with everything explicit.

    accepts: per draft round, the accepted token count the scripted drafter aims at (cycled).
    stop_after: the delivered token that acts as end of sequence; the scheduler learns it only from
        the output.
    stop_token: the request ends with the first delivered token that equals it, as with an EOS id;
        this too the scheduler learns only from the output.
    grammar_modulus: m > 0 forbids tokens congruent modulo m to the one before them; 0 forbids none
    grammar_turns: of a release's loop, for which the grammar is still being compiled
    images: parts of the prompt whose three-dimensional positions are not those of text
    """

    name: str
    arrive: int
    prompt: tuple[int, ...]
    max_tokens: int
    stop_after: int | None = None
    stop_token: int | None = None
    accepts: tuple[int, ...] = (1,)
    temperature: float = 0.0
    seed: int = 0
    grammar_modulus: int = 0
    grammar_turns: int = 0
    images: tuple[Image, ...] = ()

    @property
    def tokens_most(self) -> int:
        """How many tokens it is given, if no token of the model's ends it before."""
        return self.max_tokens if self.stop_after is None else self.stop_after


class Preempt(StrictStruct, frozen=True, kw_only=True, tag="preempt", tag_field="kind"):
    """The scheduler takes the request's blocks; it resumes later."""

    step: int
    request: str


class Abort(StrictStruct, frozen=True, kw_only=True, tag="abort", tag_field="kind"):
    """The client gives up, after the step was issued."""

    step: int
    request: str


class Gap(StrictStruct, frozen=True, kw_only=True, tag="gap", tag_field="kind"):
    """The request is not scheduled in `steps` steps from `step` on."""

    step: int
    request: str
    steps: int = 1


class Budget(StrictStruct, frozen=True, kw_only=True, tag="budget", tag_field="kind"):
    """Tokens the step may schedule."""

    step: int
    tokens: int


class DraftLimit(StrictStruct, frozen=True, kw_only=True, tag="draft_limit", tag_field="kind"):
    """At most `drafts` drafts for the request in this step."""

    step: int
    request: str
    drafts: int


class Rotate(StrictStruct, frozen=True, kw_only=True, tag="rotate", tag_field="kind"):
    """Request i takes the row of request i + 1, the last one that of the first."""

    step: int
    requests: tuple[str, ...]


class Dummy(StrictStruct, frozen=True, kw_only=True, tag="dummy", tag_field="kind"):
    """Nothing is scheduled; the engine runs a step of padding rows, as an idle rank does."""

    step: int
    rows: int = 1


class Caches(StrEnum):
    """What becomes of KV memory in a pause: kept, or cleared, so that running requests begin again
    as with other weights.
    """

    KEPT = "kept"
    CLEARED = "cleared"


class Pause(StrictStruct, frozen=True, kw_only=True):
    """The engine is paused behind the step and keeps its requests; it goes on `turns` turns of its
    loop later, in which steps that are in flight may end. 0: at once.
    """

    step: int
    turns: int = 1
    caches: Caches = Caches.KEPT


Event = Preempt | Abort | Gap | Budget | DraftLimit | Rotate | Dummy


class ScenarioBase(StrictStruct, frozen=True, kw_only=True):
    """What happens in a run, whatever runs it. origin: where it is known from
    seed: of what was drawn; steps_max: a run that takes more is cut off
    expect: the least that a run has to exercise
    """

    name: str
    title: str
    origin: str = ""
    seed: int = 1
    steps_max: int = 200
    requests: tuple[Request, ...]
    events: tuple[Event, ...] = ()
    expect: Expect = Expect()


class Scenario(ScenarioBase, frozen=True, kw_only=True):
    """What happens on a target that is configured by its own means: a release, for example.

    free_blocks: of KV memory, as the run begins; others have the rest. None: there is nobody else
    pauses: when a client pauses the engine
    """

    free_blocks: int | None = None
    pauses: tuple[Pause, ...] = ()


class OwnScenario(ScenarioBase, frozen=True, kw_only=True):
    """What happens on racegate's own engine, and the settings that this engine obeys."""

    model: ModelSpec = ModelSpec()
    engine: EngineSpec = EngineSpec()


# Either kind: a function that takes one gives the same kind back.
AnyScenario = TypeVar("AnyScenario", Scenario, OwnScenario)


MODEL, ENGINE = ModelSpec(), EngineSpec()  # settings by default
# What a file calls the tables of settings of our own engine.
SETTINGS = ("model", "engine")


def happening(script: OwnScenario) -> Scenario:
    """What happens in a script of our own engine, for a target that has none of its settings."""
    fields = ScenarioBase.__struct_fields__
    return Scenario(**{name: getattr(script, name) for name in fields})


def configured(
    scenario: Scenario, *, model: ModelSpec = MODEL, engine: EngineSpec = ENGINE
) -> OwnScenario:
    """A scenario for our own engine with these settings; what it does not say is the default."""
    fields = {name: getattr(scenario, name) for name in ScenarioBase.__struct_fields__}
    return OwnScenario(**fields, model=model, engine=engine)


def settings_of(script: OwnScenario) -> tuple[str, ...]:
    """The settings of a script that are not the defaults, as `engine.depth`."""
    return tuple(
        f"{table}.{name}"
        for table, usual in zip(SETTINGS, (MODEL, ENGINE), strict=True)
        for name in usual.__struct_fields__
        if getattr(getattr(script, table), name) != getattr(usual, name)
    )
