"""When a run that shares an eager run's steps has met it: each condition by itself. What is the
same in every way but one is not the same, and nothing may be in flight or still to be held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import msgspec
import pytest

from damages import Seen
from racegate.check.sharing import SharedRuns, _Mark
from racegate.explore.generate import generate_holds
from racegate.history.observe import Observation
from racegate.history.schedule import parse_schedule
from racegate.history.trace import Misowned
from support import checker

SCRIPT = "finish-and-condense"


class Watched(SharedRuns):
    """Notes where a run was compared with the eager one, and what was in flight there."""

    def __init__(self) -> None:
        self.looks: list[tuple[int, bool]] = []
        super().__init__(checker(SCRIPT))

    def _is_met(self, start: _Mark, here: _Mark) -> bool:
        self.looks.append((self._marks.index(here), self._device.has_pending))
        return super()._is_met(start, here)


def test_a_run_is_compared_when_nothing_is_in_flight_or_still_to_be_held() -> None:
    runs, random = Watched(), Random(3)
    over_steps = ["d2h:sampled@2 until host:prepare_inputs@3", "d2h:sampled@4 until host:process@4"]
    drawn = [generate_holds(random.randrange) for _ in range(20)]
    for schedule in (parse_schedule(over_steps), *drawn):
        runs.looks.clear()
        runs.run(schedule)
        held = runs._held_steps(schedule)
        assert not [step for step, _ in runs.looks if step in held]
        assert not any(is_pending for _, is_pending in runs.looks)


@pytest.fixture(scope="module")
def again() -> tuple[SharedRuns, _Mark, _Mark]:
    """One step of an eager run, made a second time."""
    runs = SharedRuns(checker(SCRIPT))
    return runs, runs._marks[3], runs._marks[4]


def _repeat(runs: SharedRuns, start: _Mark) -> None:
    start.checkpoint.restore()
    runs._engine.step(3)


def _one_event_more(runs: SharedRuns) -> None:
    runs._device.recorder.events.append(runs._device.recorder.events[-1])


def _another_event(runs: SharedRuns) -> None:
    events = runs._device.recorder.events
    events[-1], events[-2] = events[-2], events[-1]


def _another_content(runs: SharedRuns) -> None:
    runs._device.storages[0].content += 1


def _another_read(runs: SharedRuns) -> None:
    content, rows = runs._device.reads[-1]
    runs._device.reads[-1] = (content + 1, rows)


MEETING = (_one_event_more, _another_event, _another_content, _another_read)


@pytest.mark.parametrize("change", MEETING)
def test_another_event_content_or_read_is_no_meeting(
    again: tuple[SharedRuns, _Mark, _Mark], change: Callable[[SharedRuns], None]
) -> None:
    runs, start, here = again
    _repeat(runs, start)
    assert runs._is_met(start, here)
    change(runs)
    assert not runs._is_met(start, here)


def test_a_step_that_an_oracle_speaks_of_is_no_meeting(
    again: tuple[SharedRuns, _Mark, _Mark], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, start, here = again
    _repeat(runs, start)
    here = _shown_more(here)
    assert runs._is_silent(start, here)
    for observations in (_one_less, _counted_wrongly):
        with monkeypatch.context() as patch:
            seen = observations(runs._probe.observations(first=start.observations))
            patch.setattr(runs._probe, "observations", lambda first, seen=seen: seen)
            assert not runs._is_silent(start, here)
    assert runs._is_silent(start, here)
    foreign = Misowned("host:process@3", 3, "sampled_cpu", 0, ("A", 3), ("B", 3))
    runs._device.recorder.events.append(foreign)
    assert not runs._is_silent(start, here)


def test_oracles_are_not_asked_about_what_was_shown_before(
    again: tuple[SharedRuns, _Mark, _Mark], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, start, here = again
    _repeat(runs, start)
    assert runs._device.shown == here.shown
    monkeypatch.setattr(runs._probe, "observations", None)
    assert runs._is_silent(start, here)
    with pytest.raises(TypeError):
        runs._is_silent(start, _shown_more(here))


def _shown_more(here: _Mark) -> _Mark:
    """A mark behind which observers of the first stream were shown something else."""
    return here._replace(shown=(here.shown[0] + 1, *here.shown[1:]))


def _one_less(seen: Sequence[Observation]) -> list[Observation]:
    return list(seen[:-1])


def _counted_wrongly(seen: Sequence[Observation]) -> list[Observation]:
    """What only an invariant looks at."""
    at = next(i for i, one in enumerate(seen) if any(_running(one)))
    damaged = Seen(dict(seen[at].values), dict(seen[at].detail), checker(SCRIPT).scenario)
    damaged.count(computed=10_000)
    wrong = msgspec.structs.replace(seen[at], detail=damaged.detail)
    return [*seen[:at], wrong, *seen[at + 1 :]]


def _running(seen: Observation) -> list[bool]:
    return [count.is_running for count in seen.detail.get("counters", {}).values()]
