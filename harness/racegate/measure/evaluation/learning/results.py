"""What a comparison is asked for, and what it comes to, as data."""

from __future__ import annotations

from enum import StrEnum

from racegate.scenario.strict import StrictStruct


class Approach(StrEnum):
    """How scenarios are drawn.

    UNIFORM: as `generate` does, each about a few themes; PLAIN: each about all of them
    LEARNED: from a corpus, towards what is rare; EVEN: from a corpus, all alike
    """

    UNIFORM = "uniform"
    PLAIN = "plain"
    LEARNED = "learned"
    EVEN = "even"


class Hunt(StrictStruct, frozen=True, kw_only=True):
    """One target, one approach, one seed.

    approach: how scenarios are drawn; target: its name; scenarios: that there were
    first: scenario that noticed it, null if none did
    """

    approach: Approach
    seed: int
    target: str
    scenarios: int
    first: int | None

    @property
    def schedules(self) -> int:
        """Looked at, the one that noticed included."""
        return self.scenarios if self.first is None else self.first + 1


class Interval(StrictStruct, frozen=True, kw_only=True):
    """A figure with its interval at 95 %.

    value: of all seeds; low, high: the interval
    """

    value: float
    low: float
    high: float


class TargetRow(StrictStruct, frozen=True, kw_only=True):
    """One target by all approaches.

    target: its name; found: in so many seeds, by approach
    schedules: looked at for each find, by approach, null for none
    """

    target: str
    found: dict[str, int]
    schedules: dict[str, float | None]


class ApproachRow(StrictStruct, frozen=True, kw_only=True):
    """An approach beside uniform generation, over the slowest targets that one of both has found.

    approach: how scenarios are drawn; seeds: of both; targets: how many those are
    found, uniform: of them in a seed, on average; more: the difference
    sooner: schedules of uniform generation for each of this approach's
    """

    approach: Approach
    seeds: int
    targets: int
    found: float
    uniform: float
    more: Interval
    sooner: Interval


class LearnSpec(StrictStruct, frozen=True, kw_only=True):
    """What is compared.

    approaches: beside uniform generation; seeds: of each; scenarios: of each seed
    every: every so many-th target only
    """

    approaches: tuple[Approach, ...] = (Approach.LEARNED, Approach.PLAIN, Approach.EVEN)
    seeds: int = 12
    scenarios: int = 320
    every: int = 1

    @property
    def with_uniform(self) -> tuple[Approach, ...]:
        """All of them."""
        return tuple(dict.fromkeys((Approach.UNIFORM, *self.approaches)))


class LearnObject(StrictStruct, frozen=True, kw_only=True):
    """What learning is worth.

    spec: what was compared; targets: seeded faults, and mutants that the gate kills
    approaches: each beside uniform generation, over the slowest targets
    slow: the slowest tenth of what uniform generation noticed when they were chosen
    unnoticed: what it did not notice then
    is_complete: whether all was hunted by all approaches with all seeds
    hunts: of the slow ones and of those, one for each approach and seed
    """

    schema: str
    environment: dict[str, str]
    spec: LearnSpec
    targets: int
    approaches: tuple[ApproachRow, ...]
    slow: tuple[TargetRow, ...]
    unnoticed: tuple[TargetRow, ...]
    is_complete: bool
    hunts: tuple[Hunt, ...]
