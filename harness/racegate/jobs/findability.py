"""How often a campaign meets a finding, and how long a clean run has to be to say that it is gone.

Scenarios are drawn independently, so hits among them are binomial. The rate's interval is that of
Clopper and Pearson: exact, and rather too wide than too narrow.

A clean run of m scenarios after k hits in n: if nothing had changed, all k hits would have fallen
among the first n of n + m by chance alone, with the probability C(n, k) / C(n + m, k), whatever the
rate is. The run is long enough when this is at most ALPHA. Where k is large it is log(1 / ALPHA) /
rate, the rule of three at 99 %; where k is small it is longer, because the rate is hardly known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

import msgspec
import numpy as np

from racegate.jobs.stores.records import CampaignState, KeptFinding, Sighting

# To be wrong in one case of a hundred.
ALPHA = 0.01
# The same, but for what floating point makes of it.
TOO_MUCH = ALPHA * (1 + 1e-6)
HALVINGS = 64


class Findability(msgspec.Struct, frozen=True, kw_only=True):
    """The hit rate of a signature.

    hits: scenarios that showed it; scenarios: of how many
    rate: the share of them; rate_low, rate_high: its interval at 99 %
    clean_run: so many scenarios without it say that it is gone, at 99 %
    """

    hits: int
    scenarios: int
    rate: float
    rate_low: float
    rate_high: float
    clean_run: int


class FindingStatus(StrEnum):
    """What campaigns say of a finding now.

    NEW: the last run that looked for it was the first to show it
    ONGOING: it was known before
    RESOLVED: since it was seen last, so many scenarios were looked at without it that it is gone,
        at 99 %
    """

    NEW = "new"
    ONGOING = "ongoing"
    RESOLVED = "resolved"


class CampaignFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of campaigns that share a store.

    scenario: index of the scenario that showed it first; seed: of its campaign
    is_minimal: no hold or request can be removed; findability: null if no campaign counted it
    status: new, ongoing or resolved, null if no campaign counted it
    """

    signature: str
    seed: int
    scenario: int
    is_minimal: bool
    findability: Findability | None
    status: FindingStatus | None = None


def findability(hits: int, scenarios: int) -> Findability:
    """Of one hit at least."""
    low, high = interval(hits, scenarios)
    return Findability(
        hits=hits,
        scenarios=scenarios,
        rate=hits / scenarios,
        rate_low=low,
        rate_high=high,
        clean_run=clean_run(hits, scenarios),
    )


def findability_in(states: Iterable[CampaignState], signature: str) -> Findability | None:
    """Of a signature in all campaigns together; None if none counted it."""
    counted = [(state.hits.get(signature, 0), state.done) for state in states]
    hits, scenarios = (sum(column) for column in zip(*counted, strict=True)) if counted else (0, 0)
    return findability(hits, scenarios) if hits else None


def seen_in(states: Iterable[CampaignState], signature: str) -> Sighting | None:
    """When any of them saw a signature; None if none says."""
    seen = [state.seen[signature] for state in states if signature in state.seen]
    if not seen:
        return None
    return Sighting(first=min(at.first for at in seen), last=max(at.last for at in seen))


def status_in(states: Sequence[CampaignState], signature: str) -> FindingStatus | None:
    """Of a signature in campaigns that look alike; None if none of them says when it was seen."""
    seen = seen_in(states, signature)
    if seen is None:
        return None
    since = sum(state.done_after(seen.last) for state in states)
    hits = sum(state.hits.get(signature, 0) for state in states)
    before = sum(state.done for state in states) - since
    if since and since >= clean_run(hits, before):
        return FindingStatus.RESOLVED
    is_new = seen.first >= max(state.began for state in states)
    return FindingStatus.NEW if is_new else FindingStatus.ONGOING


def alike(state: CampaignState, states: Iterable[CampaignState]) -> list[CampaignState]:
    """Those that look at a scenario as this one does: only their hits can be added up."""
    how = (state.holds_each, state.benign)
    return [one for one in states if (one.holds_each, one.benign) == how]


def listed(
    findings: Iterable[KeptFinding], states: Iterable[CampaignState]
) -> list[CampaignFinding]:
    """Findings with how often campaigns like the one that found them meet them, the rarest last."""
    known = list(states)
    like = {state.seed: alike(state, known) for state in known}
    entries = [
        CampaignFinding(
            signature=finding.signature,
            seed=finding.seed,
            scenario=finding.index,
            is_minimal=finding.is_minimal,
            findability=findability_in(like.get(finding.seed, ()), finding.signature),
            status=status_in(like.get(finding.seed, ()), finding.signature),
        )
        for finding in findings
    ]
    return sorted(entries, key=lambda one: (-_rate(one), one.signature))


def _rate(finding: CampaignFinding) -> float:
    return 0.0 if finding.findability is None else finding.findability.rate


def interval(hits: int, scenarios: int) -> tuple[float, float]:
    """The rate's, at 99 %: outside of it so few hits, or so many, are rarer than ALPHA / 2."""
    low = high = 0.0
    if hits:
        low = _where(lambda rate: 1 - _at_most(hits - 1, scenarios, rate) >= ALPHA / 2)
    high = _where(lambda rate: _at_most(hits, scenarios, rate) <= ALPHA / 2)
    return low, high


def clean_run(hits: int, scenarios: int) -> int:
    """The fewest scenarios without a hit that are too many for chance."""
    most = 1
    while _chance(hits, scenarios, most) > TOO_MUCH:
        most *= 2
    fewest = most // 2
    while most - fewest > 1:
        middle = (most + fewest) // 2
        if _chance(hits, scenarios, middle) > TOO_MUCH:
            fewest = middle
        else:
            most = middle
    return most


def rate_below(clean: int) -> float:
    """What the rate is below, at 99 %, after so many scenarios without a hit."""
    return -math.expm1(math.log(ALPHA) / clean) if clean else 1.0


def _chance(hits: int, scenarios: int, clean: int) -> float:
    return math.exp(_log_ways(scenarios, hits) - _log_ways(scenarios + clean, hits))


def _log_ways(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _at_most(hits: int, scenarios: int, rate: float) -> float:
    """The probability of so many hits at most."""
    if rate in (0.0, 1.0) or hits >= scenarios:
        return float(rate == 0.0 or hits >= scenarios)
    number = np.arange(1, hits + 1)
    ways = np.concatenate([[0.0], np.cumsum(np.log((scenarios - number + 1) / number))])
    number = np.arange(hits + 1)
    logs = ways + number * math.log(rate) + (scenarios - number) * math.log1p(-rate)
    return float(min(1.0, np.exp(logs).sum()))


def _where(is_reached: Callable[[float], bool]) -> float:
    """The rate from which on something holds."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_reached(middle) else (middle, high)
    return high
