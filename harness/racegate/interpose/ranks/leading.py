"""The process that leads the ranks of a run: it forks them, matches what they issue, prints what
they print, and ends them. A program that starts its ranks itself is led likewise: its processes
come to it.
"""

from __future__ import annotations

import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch

from racegate.history.finding import Stack
from racegate.interpose.native import factories
from racegate.interpose.program.timeouts import STACKS_SIGNAL
from racegate.interpose.ranks.group.findings import RankFinding
from racegate.interpose.ranks.group.judging import findings_in
from racegate.interpose.ranks.group.kinds import MAIN
from racegate.interpose.ranks.group.matching import Matching
from racegate.interpose.ranks.group.messages import HelloMessage, JoinMessage, StopMessage
from racegate.interpose.ranks.group.orders import RankOrder
from racegate.interpose.ranks.group.refuting import ordered_pairs
from racegate.interpose.ranks.hanging import RanksStillness, StillState
from racegate.interpose.ranks.outcome import RankEnding, RanksOutcome
from racegate.interpose.ranks.processes import Begin, RankProcess, RankServer, RankSettings

QUIET_S = 1.0  # without a word of any rank, behind which who asks goes on
STOP_S = 3.0  # for ranks that are told to stop
_NOT_MODELLED = 3  # what a process ends with that asked for what nobody models
_NOTHING = msgspec.Raw(b"null")


@dataclass(slots=True)
class _Run:
    """One run, as far as it has come. processes: by number; judged: of how many operations findings
    are known; stop_s: when those are killed that have been told to end, 0 if nobody has
    """

    seats: RankServer
    processes: dict[int, RankProcess]
    matching: Matching
    stillness: RanksStillness = field(default_factory=RanksStillness)
    findings: tuple[RankFinding, ...] = ()
    judged: int = -1
    is_settled: bool = False
    is_stopped: bool = False
    is_quiet: bool = False
    is_hanging: bool = False
    stop_s: float = 0.0
    stood: dict[int, tuple[Stack, ...]] = field(default_factory=dict)

    @property
    def living(self) -> list[tuple[int, RankProcess]]:
        """Those that have not ended."""
        return [pair for pair in self.processes.items() if pair[1].is_living]

    @property
    def is_over(self) -> bool:
        """Whether all have ended that the program did not start itself."""
        return not any(process.is_forked for _, process in self.living)


class _TimeIsUpError(Exception):
    """The run is to end now: its time is over, or the user stops it."""


def prepare_ranks() -> None:
    """What the first operator behind a collective imports (shapes, by meta kernels): once, in the
    process that all ranks are forked from.
    """
    torch.add(factories.empty(1, device="meta"), 1)


def lead(
    ranks: int,
    stacks: Path,
    begin: Begin,
    *,
    gpus: int,
    job: Callable[[RankSettings], bytes],
    is_quiet: bool,
) -> RanksOutcome:
    """Runs a program as so many ranks, each in a process of its own; 0: as one process that starts
    its ranks itself. begin: what such a process does; it does not return. job: what one is to do
    that the program starts, as JSON; is_quiet: nothing that ranks print is shown
    """
    seats = RankServer(stacks, ranks=ranks, gpus=gpus, job=job)
    run = _Run(seats, {}, Matching(ranks))
    with ExitStack() as left:
        listening = left.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = listening.getsockname()[1]
        for number in range(ranks) if ranks else (MAIN,):
            before = list(run.processes.values())
            seat = seats.seat(number, port=port)
            run.processes[number] = seats.fork(seat, before, begin, is_quiet=is_quiet)
        if not ranks:
            run.matching.enter(MAIN)
        store = _store(listening, port) if ranks else None
        _go(run)
        del store
    return _outcome(run)


def _store(listening: socket.socket, port: int) -> Any:
    """What torchrun would keep for its ranks."""
    return torch.distributed.TCPStore(
        "127.0.0.1",
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listening.detach(),
    )


# ---- the loop


def _go(run: _Run) -> None:
    """Until all processes have ended."""
    with _stopping_on_signals():
        try:
            while run.living:
                _step(run)
        except (_TimeIsUpError, KeyboardInterrupt):
            _stop(run)
            while run.living:
                _step(run)


@contextmanager
def _stopping_on_signals() -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise _TimeIsUpError

    before = signal.signal(STACKS_SIGNAL, stop)
    try:
        yield
    finally:
        signal.signal(STACKS_SIGNAL, before)


def _step(run: _Run) -> None:
    """Waits for what happens next, and does what follows."""
    for process in _awaited(run):
        _hear(run, process)
    for rank, process in list(run.processes.items()):
        process.look()
        if process.code is not None:
            process.hear_out()
            if not process.is_heard:
                _mourn(run, rank, process.code)
    _deliver(run)
    if not run.stop_s and run.matching.is_still:
        _settle(run)
    elif not run.stop_s and run.is_quiet:
        _look(run)
    _deliver(run)
    if run.is_over and not run.stop_s:
        _dismiss(run)
    if run.stop_s and time.monotonic() > run.stop_s:
        for _, process in run.living:
            process.kill()


def _look(run: _Run) -> None:
    """Nobody has said anything for long. Others may wait for who asks, in ways that nobody sees."""
    matching = run.matching
    if matching.go_on():
        return
    pids = {rank: process.pid for rank, process in run.processes.items()}
    match run.stillness.look(matching.states, pids):
        case StillState.NO:
            matching.ask_where()
        case StillState.IN_GROUP:
            run.findings = findings_in(matching)
            _stop(run)
        case StillState.HANGS:
            run.is_hanging = True
            _stop(run)


def _awaited(run: _Run) -> list[RankProcess]:
    """Who has said something; what they print is printed on the way, and who knocks is let in."""
    reads: dict[int, RankProcess] = {}
    watched: list[int] = [run.seats.door]
    for _, process in run.living:
        watched += process.output.ends
        if process.is_heard:
            reads[process.link.fileno()] = process
        if process.code is None:
            watched.append(process.ended)
    writes = [one.link.fileno() for _, one in run.living if one.is_heard and one.link.has_unsent]
    ready, free, _ = select.select([*reads, *watched], writes, [], QUIET_S)
    run.is_quiet = not ready and not free
    run.is_settled &= run.is_quiet
    for _, process in run.living:
        if process.link.fileno() in free:
            process.link.flush()
        process.output.pass_on(ready)
    if run.seats.door in ready:
        _let_in(run)
    return [reads[end] for end in ready if end in reads]


def _let_in(run: _Run) -> None:
    """A process that the program started has a device."""

    def number(told: HelloMessage) -> int:
        is_free = told.rank is not None and told.rank not in run.processes
        return told.rank if told.rank is not None and is_free else min((0, *run.processes)) - 1

    if (come := run.seats.let_in(number)) is not None:
        rank, process = come
        run.processes[rank] = process
        run.matching.enter(rank)


def _hear(run: _Run, process: RankProcess) -> None:
    told = process.link.receive()
    if told is None:
        process.hang_up()
        return
    rank = next(rank for rank, one in run.processes.items() if one is process)
    if isinstance(told, JoinMessage) and rank < 0 and told.whole not in run.processes:
        run.processes[told.whole] = run.processes.pop(rank)
        run.matching.rename(rank, told.whole)
        rank = told.whole
    run.matching.take(rank, told)


def _mourn(run: _Run, rank: int, code: int) -> None:
    """The process of a rank is gone."""
    state = run.matching.states[rank]
    if state.is_gone:
        return
    how = f" by {signal.Signals(-code).name}" if code < 0 else f" with exit code {code}"
    is_early = state.order is None
    run.matching.end(rank, how if run.processes[rank].is_forked else "")
    if is_early and code == _NOT_MODELLED:
        _stop(run)


def _deliver(run: _Run) -> None:
    mail, run.matching.mail = run.matching.mail, []
    for rank, message in mail:
        process = run.processes[rank]
        if process.is_heard:
            process.link.post(message)


def _settle(run: _Run) -> None:
    """Nobody can go on."""
    matching = run.matching
    if run.is_settled or matching.go_on():
        return
    if run.judged != len(matching.meetings.nodes):
        run.judged = len(matching.meetings.nodes)
        run.findings = findings_in(matching)
    if not matching.is_over:
        _stop(run)
    elif not matching.release():
        matching.dismiss()
        run.is_settled = True


def _stop(run: _Run) -> None:
    """Ranks say what they have found, and end."""
    run.is_stopped = True
    states = run.matching.states
    run.stood = {rank: tuple(one.stack for one in state.places) for rank, state in states.items()}
    _dismiss(run)


def _dismiss(run: _Run) -> None:
    """All processes are told to end, and killed when they have not soon."""
    run.stop_s = time.monotonic() + STOP_S
    run.matching.mail.clear()
    for process in run.processes.values():
        if process.is_heard:
            process.link.post(StopMessage())


def _outcome(run: _Run) -> RanksOutcome:
    states = run.matching.states
    numbers = [rank for rank, process in run.processes.items() if _has_said(process)]
    numbers.sort(key=lambda rank: (rank < 0, abs(rank)))
    ordered = ordered_pairs([states[rank].order or RankOrder() for rank in numbers])
    ends = []
    for rank, pairs in zip(numbers, ordered, strict=True):
        process = run.processes[rank]
        data = process.outcome()
        end = RankEnding(
            rank=rank,
            code=process.code or 0,
            outcome=msgspec.Raw(data) if data else _NOTHING,
            ordered=pairs,
            stood=run.stood.get(rank, ()),
        )
        ends.append(end)
    return RanksOutcome(
        ranks=tuple(ends),
        findings=run.findings,
        is_stopped=run.is_stopped,
        is_hanging=run.is_hanging,
        lost=len(run.processes) - len(ends),
    )


def _has_said(process: RankProcess) -> bool:
    """Whether something is known of it: not of one that the program ended itself."""
    return process.is_forked or bool(process.outcome())
