"""The driver of a pool, over handles that are lost when a test says so: nothing handed out is lost
with one, and what takes worker after worker with it is set aside.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from pool_workers import Squarer, numbered
from racegate.cli.fuzz import exit_code_of
from racegate.history.breakage import Breakage
from racegate.jobs.campaign import Campaign
from racegate.jobs.fuzz import END_WITHIN_S, Bounds, fuzz
from racegate.jobs.generated import CampaignSpec, ScenarioWorker
from racegate.jobs.pools import driver
from racegate.jobs.pools.driver import DrivenPool, GoneError, Ready, said_of
from racegate.jobs.pools.pool import (
    Done,
    Ended,
    Event,
    Failed,
    HandedBack,
    Lost,
    SetAside,
    Started,
    Task,
    Tick,
    in_order,
    spread,
)
from racegate.jobs.pools.returned import ReturnedTasks, WorkerLoss
from racegate.jobs.stores.records import ScenarioAside
from racegate.report.search import print_campaign

# In place of a task, for `dies_at`.
START, END = -1, -2


class Handle:
    """A worker that is asked when its driver listens. dies_at: what it does not survive"""

    def __init__(self, worker: Squarer, dies_at: Callable[[object], bool]) -> None:
        self._worker = worker
        self._dies_at = dies_at
        self._next: Task[int] | None = None
        self._is_ready = False

    def send(self, task: Task[int] | None) -> None:
        self._next = task

    def hear(self) -> object:
        if not self._is_ready:
            if self._dies_at(START):
                raise GoneError("was unplugged")
            self._is_ready = True
            return Ready()
        task = self._next
        if task is None:
            if self._dies_at(END):
                raise GoneError("was unplugged")
            return said_of(self._worker.end)
        if self._dies_at(task.content):
            raise GoneError("was unplugged")
        return said_of(lambda: self._worker.work(task.content))

    @property
    def content(self) -> int | None:
        """Of its task."""
        return None if self._next is None else self._next.content

    def signs(self) -> int:
        return 0

    def kill(self) -> None:
        pass

    def close(self) -> None:
        pass


class Bench:
    """A transport. deaths: what each task still does to workers; room: for how many more workers
    there is any
    """

    def __init__(self, deaths: dict[int, int], *, room: int = 99) -> None:
        self.deaths = deaths
        self.room = room
        self.is_closed = False

    def _dies_at(self, task: object) -> bool:
        assert isinstance(task, int)
        left = self.deaths.get(task, 0)
        self.deaths[task] = left - 1
        return left > 0

    def open(self, make: Callable[[int], Any], number: int) -> Handle:
        return Handle(make(number), self._dies_at)

    def has_room(self) -> bool:
        self.room -= 1
        return self.room >= 0

    def wait(self, handles: Sequence[Handle], timeout_s: float) -> Sequence[Handle]:
        return handles[:1]

    def close(self) -> None:
        self.is_closed = True


def heard(bench: Bench, numbers: Iterator[int] | range, *, losses_max: int = 2) -> list[Event[Any]]:
    pool = DrivenPool(bench, losses_max=losses_max)
    with closing(pool.run(Squarer, spread(numbered(iter(numbers)), 2))) as events:
        found = [event for event in in_order(events) if not isinstance(event, Tick)]
    assert bench.is_closed
    return found


def results(events: Sequence[Event[Any]]) -> list[int]:
    return [event.result for event in events if isinstance(event, Done)]


def kinds(events: Sequence[Event[Any]]) -> list[type]:
    return [type(event) for event in events if not isinstance(event, Started | Done | Ended)]


@pytest.mark.parametrize("doomed", range(5))
def test_another_worker_does_what_one_was_doing(doomed: int) -> None:
    events = heard(Bench({doomed: 1}), range(5))
    assert results(events) == [0, 1, 4, 9, 16]  # in their order
    (back,) = [event for event in events if isinstance(event, HandedBack)]
    assert (back.doing, back.why) == (f"number {doomed}", "was unplugged")
    assert sum(isinstance(event, Ended) for event in events) == 2


def test_each_worker_is_said_to_have_started_under_its_own_number() -> None:
    started = [event.worker for event in heard(Bench({}), range(5)) if isinstance(event, Started)]
    assert started == [0, 1]


def test_what_takes_two_workers_with_it_alone_is_set_aside() -> None:
    events = heard(Bench({1: 9, 3: 1}), range(5))
    assert results(events) == [0, 4, 9, 16]
    (aside,) = [event for event in events if isinstance(event, SetAside)]
    assert (aside.name, aside.content, aside.number) == ("number 1", 1, 1)
    assert aside.breakage.error == (
        "4 workers were lost with it, 2 of them while it ran alone; the last one was unplugged"
    )


@pytest.mark.parametrize("deaths", [2, 3])
def test_what_does_not_take_two_alone_is_done(deaths: int) -> None:
    """Its workers were lost by what others did, or by what was done to them."""
    events = heard(Bench({1: deaths, 2: deaths}), range(5))
    assert results(events) == [0, 1, 4, 9, 16]
    assert kinds(events) == [HandedBack] * (2 * deaths)


def test_what_hangs_twice_is_set_aside_and_holds_nobody_up() -> None:
    """Nothing but a task makes its worker silent: it is no suspect, and is not tried alone."""
    returned: ReturnedTasks[int] = ReturnedTasks(2)
    hung = (0, Task(name="number 0", content=0))
    assert returned.takes(hung, WorkerLoss.SILENT)
    assert (list(returned.back), list(returned.suspects)) == ([hung], [])
    assert not returned.takes(returned.back.popleft(), WorkerLoss.SILENT)
    assert returned.blame(0) == "2 workers were lost with it"
    assert not returned


def test_a_suspect_has_the_workers_to_itself() -> None:
    """Once two workers were lost with it nobody else is at a task while it is tried."""
    at_work: list[set[int]] = []

    class Watched(Bench):
        def wait(self, handles: Sequence[Handle], timeout_s: float) -> Sequence[Handle]:
            at_work.append({one.content for one in handles if one.content is not None})
            return [one for one in handles if one.content == 1] or handles[:1]

    bench = Watched({1: 9})
    pool = DrivenPool(bench, losses_max=2)
    with closing(pool.run(Squarer, spread(numbered(iter(range(9))), 3))) as events:
        found = [event for event in events if not isinstance(event, Tick)]
    assert sorted(results(found)) == [n * n for n in range(9) if n != 1]
    assert [tasks for tasks in at_work if 1 in tasks][2:] == [{1}, {1}]


def test_a_worker_that_is_lost_at_its_start_is_replaced() -> None:
    events = heard(Bench({START: 3}), range(5))
    assert results(events) == [0, 1, 4, 9, 16]
    back = [event for event in events if isinstance(event, HandedBack)]
    assert [event.doing for event in back] == ["its start"] * 3


def test_workers_that_never_start_end_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LOST_IN_A_ROW_MAX", 2)
    events = heard(Bench({START: 99}), range(5))
    assert kinds(events) == [HandedBack, HandedBack, Lost, Lost]


@pytest.mark.parametrize("lost", [1, 2, 4])
def test_a_worker_that_is_lost_at_its_end_ends_nothing(lost: int) -> None:
    """The last to end looks at the harness once more; if it is lost, another one does."""
    events = heard(Bench({END: lost}), range(5))
    assert results(events) == [0, 1, 4, 9, 16]
    assert [event.doing for event in events if isinstance(event, HandedBack)] == ["its end"] * lost
    assert kinds(events) == [HandedBack] * lost
    assert any(isinstance(event, Ended) for event in events)


def test_workers_that_never_end_are_said() -> None:
    events = heard(Bench({END: 99}), range(5))
    assert results(events) == [0, 1, 4, 9, 16]
    assert kinds(events)[:4] == [HandedBack] * driver.LOST_IN_A_ROW_MAX
    assert Lost in kinds(events)


def test_a_job_that_lost_all_its_workers_is_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "TICK_S", 0.0)
    monkeypatch.setattr(driver, "ROOM_WITHIN_S", 0.01)
    events = heard(Bench({START: 2}, room=0), range(2))
    assert kinds(events) == [HandedBack, HandedBack, Lost, Lost]
    assert "there was room for no other" in events[-1].text


def test_a_pinned_task_is_lost_with_its_worker() -> None:
    events = heard(Bench({1: 9}), range(5), losses_max=1)
    assert results(events) == [0]  # what comes after waits for its turn
    assert kinds(events) == [Lost]


def test_without_room_the_others_do_it() -> None:
    assert results(heard(Bench({0: 1}, room=0), range(5))) == [0, 1, 4, 9, 16]


def test_room_that_comes_later_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "TICK_S", 0.0)

    class Late(Bench):
        def has_room(self) -> bool:
            self.room -= 1
            return self.room < 95

    assert results(heard(Late({0: 1, 1: 1}), range(3))) == [0, 1, 4]


@pytest.mark.parametrize("phase", [START, 0, 3, 4, END])
def test_a_last_worker_that_was_lost_is_replaced_in_every_phase(
    monkeypatch: pytest.MonkeyPatch, phase: int
) -> None:
    """It had said nothing for longer than a job without workers waits."""
    clock = [0.0]
    monkeypatch.setattr(driver, "_now", lambda: clock[0])

    class Slow(Bench):
        def wait(self, handles: Sequence[Handle], timeout_s: float) -> Sequence[Handle]:
            clock[0] += driver.ROOM_WITHIN_S + 1
            return handles[:1]

    pool = DrivenPool(Slow({phase: 1}), losses_max=2)
    with closing(pool.run(Squarer, spread(numbered(iter(range(5))), 1))) as events:
        found = list(in_order(events))
    assert results(found) == [0, 1, 4, 9, 16]
    assert kinds(found) == [HandedBack]
    assert isinstance(found[-1], Ended)


@pytest.mark.parametrize("is_alive", [True, False])
def test_signs_of_life_begin_the_time_of_a_task_anew(
    monkeypatch: pytest.MonkeyPatch,
    is_alive: bool,  # noqa: FBT001  a parameter of the test
) -> None:
    """A worker that minimises for longer than it may be silent is lost only without them."""
    clock, ticks = [0.0], iter(range(6))
    monkeypatch.setattr(driver, "_now", lambda: clock[0])
    monkeypatch.setattr(Handle, "signs", lambda self: int(clock[0]) if is_alive else 0)

    class Minimising(Bench):
        def wait(self, handles: Sequence[Handle], timeout_s: float) -> Sequence[Handle]:
            is_at_task = handles[0].content is not None
            clock[0] += 40.0
            return [] if is_at_task and next(ticks, None) is not None else handles[:1]

    pool = DrivenPool(Minimising({}), losses_max=1, silent_s=60.0)
    with closing(pool.run(Squarer, spread(numbered(iter([3])), 1))) as events:
        found = [event for event in events if not isinstance(event, Tick)]
    assert [event.why for event in found if isinstance(event, Lost)] == (
        [] if is_alive else ["has said nothing for 60 s"]
    )
    assert results(found) == ([9] if is_alive else [])


def test_without_any_room_what_was_handed_back_is_not_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "TICK_S", 0.0)
    monkeypatch.setattr(driver, "ROOM_WITHIN_S", 0.01)
    events = heard(Bench({0: 1, 1: 1}, room=0), range(2))
    assert results(events) == [0]
    (failed,) = [event.breakage for event in events if isinstance(event, Failed)]
    assert (failed.at, "no other" in failed.error) == ("number 1", True)


class _Told:
    """A pool that says what a test tells it."""

    def __init__(self, events: Iterable[Event[Any]]) -> None:
        self._events = events

    def run(self, make: object, shares: object) -> Iterator[Event[Any]]:
        yield from self._events


@pytest.mark.parametrize(("save_s", "saves"), [(0.01, 5), (1.0, 2), (60.0, 2)])
def test_a_store_that_is_slow_is_asked_less_often(
    save_s: float, saves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events come for 10 s, and are not held up by more than the first save and the last."""
    clock, saved, save = [0.0], [], Campaign.save

    def event(number: int) -> Ended[None]:
        clock[0] += 0.1
        return Ended(worker=number, result=None)

    def slow(campaign: Campaign, seconds: float) -> Any:
        clock[0] += save_s
        saved.append(clock[0])
        return save(campaign, seconds)

    monkeypatch.setattr("racegate.jobs.fuzz.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(Campaign, "save", slow)
    told = (event(number) for number in range(100))
    monkeypatch.setattr("racegate.jobs.fuzz.pool_of", lambda *given, **more: _Told(told))
    fuzz(Campaign(CampaignSpec(seed=3), tmp_path), Bounds(scenarios=1), workers=100)
    assert len(saved) == saves


def test_a_campaign_goes_on_without_what_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = CampaignSpec(seed=3)
    worker = ScenarioWorker(spec, frozenset())
    poison = Breakage(at="scenario 0", error="2 workers were lost with it; the last one burnt")
    told = [
        HandedBack(worker=0, doing="scenario 0", why="burnt"),
        # Its turn comes only when scenario 0 is put aside, and its worker has ended by then.
        Done(worker=1, number=1, name="scenario 1", result=worker.work(1)),
        Ended(worker=1, result=worker.end()),
        SetAside(worker=0, number=0, name="scenario 0", content=0, breakage=poison),
    ]
    monkeypatch.setattr("racegate.jobs.fuzz.pool_of", lambda *given, **more: _Told(told))
    aside_of_0 = ScenarioAside(scenario=0, why=poison.error)
    campaign = Campaign(spec, tmp_path)
    state = fuzz(campaign, Bounds(scenarios=2), workers=2)
    assert (state.done, state.set_aside) == (2, (aside_of_0,))
    assert (campaign.set_aside, campaign.breakages) == ([poison], [])
    assert campaign.losses == [
        "worker 0 burnt; it was at scenario 0",
        "worker 0 was at scenario 0: 2 workers were lost with it; the last one burnt",
    ]
    assert (campaign.unchecked, exit_code_of(campaign, state)) == (set(), 3)
    console = Console(width=200, record=True, file=io.StringIO())
    print_campaign(console, campaign, state)
    assert "worker 0 burnt; it was at scenario 0" in console.export_text()
    # A later run does not look at it again, and does not say that all is well.
    later = Campaign(spec, tmp_path)
    assert (later.done, later.state(0.0).set_aside) == (2, (aside_of_0,))
    assert exit_code_of(later, later.state(0.0)) == 4


def test_workers_have_a_while_for_what_they_are_at_when_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are heard until then, and nobody waits for one that says nothing for longer."""
    clock, heard = [0.0], []

    def told() -> Iterator[Event[Any]]:
        for number in range(9):
            clock[0] += END_WITHIN_S / 4
            heard.append(clock[0])
            yield Ended(worker=number, result=None)

    monkeypatch.setattr("racegate.jobs.fuzz.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr("racegate.jobs.fuzz.pool_of", lambda *given, **more: _Told(told()))
    bounds = Bounds(seconds=END_WITHIN_S / 2, scenarios=1)
    fuzz(Campaign(CampaignSpec(seed=3), tmp_path), bounds, workers=9)
    assert heard[-1] == END_WITHIN_S * 1.5
