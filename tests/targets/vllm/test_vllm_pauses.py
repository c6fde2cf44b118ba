"""A client pauses the engine between turns of its loop, and lets it go on."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from racegate.scenario.spec import Caches, Pause
from racegate.targets.common.inside.serve import NotTaken
from racegate.targets.vllm.inside.scripted.pauses import Pauses


class PausedEngine:
    """What a client may ask of vLLM's engine, noted. in_flight: steps whose output is to come"""

    def __init__(self, in_flight: int) -> None:
        core = SimpleNamespace(batch_queue=[None] * in_flight)
        self.engine_core = SimpleNamespace(engine_core=core)
        self.asked: list[str] = []

    def sleep(self, level: int, mode: str) -> None:
        self.asked.append(f"sleep {level} {mode}")

    def wake_up(self, tags: list[str]) -> None:
        self.asked.append(f"wake {tags}")

    def reset_prefix_cache(self, *, reset_running_requests: bool) -> None:
        self.asked.append(f"reset {reset_running_requests}")


def asked_by_turn(
    engine: Any, counters: Counter[str], *pauses: Pause, turns: int
) -> list[list[str]]:
    """What is asked behind each turn, of which each issues a step unless the engine sleeps."""
    found: list[list[str]] = []
    asked = Pauses(engine, counters, pauses)
    is_asleep, step = False, 0
    for _ in range(turns):
        step += not is_asleep
        asked.between_turns(step)
        found.append(list(engine.asked))
        engine.asked.clear()
        for one in found[-1]:
            is_asleep = one.startswith("sleep") or (is_asleep and not one.startswith("wake"))
    return found


def test_a_pause_is_as_many_turns_long_as_it_says() -> None:
    engine, counters = PausedEngine(1), Counter[str]()
    found = asked_by_turn(engine, counters, Pause(step=1, turns=2), turns=6)
    assert found == [[], ["sleep 0 keep"], [], ["wake ['scheduling']"], [], []]
    assert counters["pauses_in_flight"] == 1


def test_caches_are_cleared_with_a_pause_or_without_one() -> None:
    engine, counters = PausedEngine(0), Counter[str]()
    paused = Pause(step=2, caches=Caches.CLEARED)
    at_once = Pause(step=1, turns=0, caches=Caches.CLEARED)
    found = asked_by_turn(engine, counters, paused, at_once, turns=4)
    assert found == [[], ["reset True"], ["sleep 0 keep", "reset True"], ["wake ['scheduling']"]]
    assert counters["pauses_in_flight"] == 0, "no step was in flight"


def test_a_release_that_keeps_no_requests_is_not_taken() -> None:
    engine: Any = SimpleNamespace(sleep=lambda level: None)
    Pauses(engine, Counter(), ())
    with pytest.raises(NotTaken, match="requests kept"):
        Pauses(engine, Counter(), (Pause(step=1),))
