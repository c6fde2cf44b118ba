"""The rule of the verdict: one table from what is known of a scenario, and what was tried, to the
word that may be said. Every judge, of our own engine as of programs, releases and adapters, asks
`verdict_of`; none has a rule of its own. docs/verdicts.md shows the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from racegate.history.finding import Finding, FindingKind, Verdict
from racegate.history.trace import HoldOutcome
from racegate.scenario.strict import StrictStruct


class Reach(StrEnum):
    """What was tried of the schedules that the program's own edges allow, from weak to strong.

    NOTHING: no schedule but the recorded one
    SOME: some landings of one operation each, or one schedule that somebody named
    EACH_ALONE: each landing of each operation in a conflict, one operation at a time
    COMBINATIONS: every combination of those landings
    CLASSES: every class of equivalent schedules
    """

    NOTHING = "nothing"
    SOME = "some landings"
    EACH_ALONE = "each landing alone"
    COMBINATIONS = "every combination of landings"
    CLASSES = "every class of schedules"

    def is_at_least(self, other: Reach) -> bool:
        """Whether this tries all that the other one does."""
        order = list(Reach)
        return order.index(self) >= order.index(other)


class Tried(StrictStruct, frozen=True, kw_only=True):
    """What was tried besides the recorded run.

    reach: how far the schedules go; number: how many were run and did what they say
    known: how many of this kind there are, 0 where nobody counted them
    """

    reach: Reach = Reach.NOTHING
    number: int = 0
    known: int = 0

    @property
    def text(self) -> str:
        """In words, fit to follow `BENIGN in` or to precede `tried`."""
        many = self.number != 1
        match self.reach:
            case Reach.NOTHING:
                return "no landing"
            case Reach.SOME if self.known:
                return f"{self.number} of {self.known} landings"
            case Reach.SOME:
                return f"{self.number} schedule{'s' * many}"
            case Reach.EACH_ALONE:
                return f"each of {self.number} landing{'s' * many} of one operation"
            case Reach.COMBINATIONS:
                return f"each of {self.number} combination{'s' * many} of landings"
            case Reach.CLASSES:
                return f"each of {self.number} class{'es' * many} of equivalent schedules"


NOTHING_TRIED = Tried()


def tried_by_hand(holds: Sequence[HoldOutcome]) -> Tried:
    """What one run under holds that somebody named has tried: nothing if they kept nothing back."""
    is_realised = bool(holds) and all(hold.realised for hold in holds)
    return Tried(reach=Reach.SOME, number=int(is_realised))


# Nothing orders what an order has to be for; no run has come out wrong by it.
UNORDERED = (FindingKind.CONFLICT, FindingKind.ORDER)


class Facts(StrictStruct, frozen=True, kw_only=True):
    """What is known of a scenario before a word is said about it.

    is_broken: the harness failed a check of its own, so that nothing else counts
    is_deadlocked: a run came to a wait that nothing can end
    is_wrong: a run had a wrong value, broke an invariant, lost tokens or crashed
    conflicts: pairs of accesses, or of collectives, that nothing orders, without those that
        somebody let stand
    unmet: in words, why a run in which nothing is wrong would be no proof: expectations, a run that
        was cut off, observations that a planted value does not change, oracles that were not asked,
        holds that were not realised, answers to queries that were not run
    is_compared: runs were compared by what they observed, so that another outcome would show
    """

    is_broken: bool = False
    is_deadlocked: bool = False
    is_wrong: bool = False
    conflicts: int = 0
    unmet: tuple[str, ...] = ()
    is_compared: bool = True
    tried: Tried = NOTHING_TRIED


def facts_of(
    findings: Sequence[Finding],
    unmet: tuple[str, ...],
    tried: Tried,
    *,
    is_broken: bool = False,
    is_compared: bool = True,
) -> Facts:
    """What the rule is asked about one run, or about all runs of a search. The last three are
    those of `Facts`.
    """
    kinds = {finding.kind for finding in findings}
    return Facts(
        is_broken=is_broken,
        is_deadlocked=FindingKind.DEADLOCK in kinds,
        is_wrong=bool(kinds - {*UNORDERED, FindingKind.DEADLOCK}),
        conflicts=sum(finding.kind in UNORDERED for finding in findings),
        unmet=unmet,
        is_compared=is_compared,
        tried=tried,
    )


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. when: in words; fits: the same, asked of facts; what: what is said"""

    when: str
    verdict: Verdict
    fits: Callable[[Facts], bool]


# Of several lines that fit, the first one counts.
RULE = (
    Line(
        "the harness failed a check of its own",
        Verdict.BROKEN_HARNESS,
        lambda facts: facts.is_broken,
    ),
    Line(
        "a wait that nothing can end",
        Verdict.DEADLOCK,
        lambda facts: facts.is_deadlocked,
    ),
    Line(
        "a wrong value, a broken invariant, a loss or a crash, in any run",
        Verdict.DIVERGENT,
        lambda facts: facts.is_wrong,
    ),
    Line(
        "a conflict, and fewer schedules tried than each landing of each operation",
        Verdict.CONFLICT,
        lambda facts: bool(facts.conflicts) and not is_whole(facts.tried),
    ),
    Line(
        "a conflict, and nothing that runs could be compared by",
        Verdict.CONFLICT,
        lambda facts: bool(facts.conflicts) and not facts.is_compared,
    ),
    Line(
        "a conflict, all landings tried without harm, and something not met",
        Verdict.INCONCLUSIVE,
        lambda facts: bool(facts.conflicts and facts.unmet),
    ),
    Line(
        "a conflict, all landings tried without harm, and everything met",
        Verdict.BENIGN,
        lambda facts: bool(facts.conflicts),
    ),
    Line(
        "no conflict, and something not met",
        Verdict.INCONCLUSIVE,
        lambda facts: bool(facts.unmet),
    ),
    Line("no conflict, and everything met", Verdict.PROVED, lambda facts: True),
)


def is_whole(tried: Tried) -> bool:
    """Whether so much was tried that BENIGN may be said. No schedule at all is never enough."""
    return bool(tried.number) and tried.reach.is_at_least(Reach.EACH_ALONE)


def verdict_of(facts: Facts) -> Verdict:
    """The word that the table has for these facts."""
    return next(line.verdict for line in RULE if line.fits(facts))


def verdict_text(verdict: Verdict, tried: Tried) -> str:
    """The verdict as it is printed: with what was tried, where the word rests on it."""
    match verdict:
        case Verdict.BENIGN:
            is_alone = tried.reach is Reach.EACH_ALONE
            return f"{verdict} in {tried.text}{'; combinations not tried' * is_alone}"
        case Verdict.CONFLICT if tried.number:
            return f"{verdict}; {tried.text} tried, without harm"
    return str(verdict)


def unrealised(holds: Sequence[HoldOutcome]) -> tuple[str, ...]:
    """Of holds that kept nothing back, why a run under them would be no proof."""
    return tuple(unrealised_text(hold.hold) for hold in holds if not hold.realised)


def unrealised_text(hold: str) -> str:
    """Why a run with this hold, which kept nothing back, would be no proof."""
    return f"hold '{hold}' was not realised"
