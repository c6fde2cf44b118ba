"""What became of requests: preempted, aborted, stopped, ended."""

from __future__ import annotations

from collections import Counter

from racegate.explore.features.facts import DELIVERED_ALL, RunFacts, met
from racegate.explore.features.prefixes import admissions
from racegate.scenario.spec import Abort, Dummy, Rotate


def is_preempted_twice(facts: RunFacts) -> bool:
    """One request is preempted, resumes, and is preempted again."""
    return any(n > 1 for n in Counter(p.request for p in facts.preemptions).values())


def are_two_preempted(facts: RunFacts) -> bool:
    """Two requests are preempted in one step."""
    return any(n > 1 for n in Counter(p.step for p in facts.preemptions).values())


def is_preempted_for_blocks(facts: RunFacts) -> bool:
    """A request is preempted because another needs its blocks."""
    return any(not p.is_forced for p in facts.preemptions)


def is_preempted_in_prefill(facts: RunFacts) -> bool:
    """A request is preempted between two chunks of its prompt."""
    entries = list(facts.entries)
    for preemption in facts.preemptions:
        before = [
            e for e in entries if e.request == preemption.request and e.step < preemption.step
        ]
        if before and before[-1].is_discarded:
            return True
    return False


def is_aborted_waiting(facts: RunFacts) -> bool:
    """A client gives up while its request waits, before it ran or after a preemption."""
    return any(
        facts.is_waiting(request, step)
        for step, request in met(facts.scenario, facts.result, Abort)
    )


def ending_frames(facts: RunFacts) -> dict[str, int]:
    """The frame that delivered the last token of each request that was not aborted."""
    ended: dict[str, int] = {}
    for frame in facts.frames:
        for name, delivered in frame.delivered.items():
            is_all = facts.result.finished[name] in DELIVERED_ALL
            if is_all and delivered == facts.result.delivered[name]:
                ended.setdefault(name, frame.step)
    return ended


def ends_late(facts: RunFacts) -> bool:
    """A request ends with a frame from before its preemption, while it waits to resume."""
    ended = ending_frames(facts)
    done = {frame.step: frame.iteration for frame in facts.frames}
    return any(
        p.request in ended and ended[p.request] < p.step <= done[ended[p.request]]
        for p in facts.preemptions
    )


def ends_by_token(facts: RunFacts) -> bool:
    """A request ends with its stop token."""
    return any(
        facts.result.finished[r.name] == "stop"
        and facts.result.delivered[r.name][-1:] == (r.stop_token,)
        for r in facts.scenario.requests
    )


def ends_by_count(facts: RunFacts) -> bool:
    """A request ends before max_tokens, and the scheduler learns it from the output only."""
    return any(
        facts.result.finished[r.name] == "stop"
        and len(facts.result.delivered[r.name]) == r.stop_after
        for r in facts.scenario.requests
    )


def ends_at_once(facts: RunFacts) -> bool:
    """A request delivers one token only: the one its prefill sampled."""
    return any(
        len(facts.result.delivered[name]) == 1 and finish in DELIVERED_ALL
        for name, finish in facts.result.finished.items()
    )


def are_two_ending(facts: RunFacts) -> bool:
    """Two requests end with the same frame."""
    return any(n > 1 for n in Counter(ending_frames(facts).values()).values())


def reaches_length(facts: RunFacts) -> bool:
    """A request ends as long as the model allows."""
    most = facts.scenario.engine.model_len_max
    return any(
        len(r.prompt) + len(facts.result.delivered[r.name]) == most for r in facts.scenario.requests
    )


def is_dummy_between(facts: RunFacts) -> bool:
    """A step of padding rows runs between steps of requests."""
    steps = [step.step for step in facts.steps]
    dummies = [event.step for event in facts.scenario.events if isinstance(event, Dummy)]
    return bool(steps) and any(steps[0] < dummy < steps[-1] for dummy in dummies)


def rotates(facts: RunFacts) -> bool:
    """Rows change places because the script says so."""
    return any(
        isinstance(event, Rotate)
        and f"rotate {' '.join(event.requests)} @{event.step}" not in facts.result.unmet_events
        and event.step in {step.step for step in facts.steps}
        for event in facts.scenario.events
    )


def resumes_with_outputs(facts: RunFacts) -> bool:
    """A request enters again with tokens that it has delivered: they are its prompt now."""
    resumed = {e.request: e.step for e in admissions(facts)}
    entered = {e.request: e.step for e in reversed(list(admissions(facts)))}
    return any(
        frame.step < resumed[name] and delivered
        for frame in facts.frames
        for name, delivered in frame.delivered.items()
        if name in resumed and entered[name] < resumed[name]
    )
