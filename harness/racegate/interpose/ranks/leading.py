"""The process that leads the ranks of a run: it forks them, matches what they issue, prints what
they print, and ends them.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import msgspec
import torch

from racegate.history.finding import Stack
from racegate.interpose.program.leftovers import fork
from racegate.interpose.program.timeouts import STACKS_SIGNAL
from racegate.interpose.ranks.group.findings import RankFinding
from racegate.interpose.ranks.group.judging import findings_in
from racegate.interpose.ranks.group.matching import Matching
from racegate.interpose.ranks.group.messages import Down, Message, RankLink, StopMessage, Up
from racegate.interpose.ranks.group.orders import RankOrder
from racegate.interpose.ranks.group.refuting import ordered_pairs
from racegate.interpose.ranks.hanging import RanksStillness, Standstill
from racegate.interpose.ranks.outcome import RankEnding, RanksOutcome
from racegate.interpose.ranks.printing import PrefixedOutput

QUIET_S = 1.0  # without a word of any rank, behind which who asks goes on
STOP_S = 3.0  # for ranks that are told to stop
_NOT_MODELLED = 3  # what a process ends with that asked for what nobody models
_NOTHING = msgspec.Raw(b"null")


class RankSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a process needs to be a rank. port: of the store of the process group

    result: a file that is there, for its outcome; stacks: a folder, for where it stands
    """

    rank: int
    ranks: int
    port: int
    result: str
    stacks: str

    @property
    def environment(self) -> dict[str, str]:
        """As `torchrun --standalone --nproc-per-node N` gives it."""
        rank, ranks = str(self.rank), str(self.ranks)
        return {
            "RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank, "GROUP_RANK": "0",
            "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "ROLE_WORLD_SIZE": ranks,
            "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "default",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port),
            "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": "racegate", "TORCHELASTIC_USE_AGENT_STORE": "True",
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(self.ranks))),
        }  # fmt: skip


@dataclass(slots=True)
class _Process:
    """A rank, as its leader has it. code: of the process, once it has ended"""

    pid: int
    link: RankLink
    result: int
    ended: int
    output: PrefixedOutput
    code: int | None = None
    is_heard: bool = True


@dataclass(slots=True)
class _Run:
    """One run, as far as it has come."""

    processes: list[_Process]
    matching: Matching
    stillness: RanksStillness
    findings: tuple[RankFinding, ...] | None = None
    is_stopped: bool = False
    is_quiet: bool = False
    is_hanging: bool = False
    stop_s: float = 0.0
    stood: list[tuple[Stack, ...]] = field(default_factory=list)

    @property
    def living(self) -> list[tuple[int, _Process]]:
        """The ranks whose process has not ended, or has not been heard to its end."""
        return [
            (rank, process)
            for rank, process in enumerate(self.processes)
            if process.code is None or process.is_heard or process.output.is_open
        ]


class _TimeIsUpError(Exception):
    """The run is to end now: its time is over, or the user stops it."""


def prepare_ranks() -> None:
    """What the first operator behind a collective imports (shapes, by meta kernels): once, in the
    process that all ranks are forked from.
    """
    torch.add(torch.empty(1, device="meta"), 1)


def lead(
    ranks: int, stacks: Path, begin: Callable[[RankSettings, RankLink], NoReturn], *, is_quiet: bool
) -> RanksOutcome:
    """Runs a program as so many ranks, each in a process of its own. begin: what such a process
    does; it does not return. is_quiet: nothing that they print is shown
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        processes: list[_Process] = []
        for rank in range(ranks):
            folder = stacks / f"rank-{rank}"
            folder.mkdir()
            result = os.memfd_create(f"racegate-rank-{rank}")
            name = f"/proc/{os.getpid()}/fd/{result}"
            seat = RankSettings(rank=rank, ranks=ranks, port=port, result=name, stacks=str(folder))
            processes.append(_forked(seat, result, processes, begin, is_quiet=is_quiet))
        store = torch.distributed.TCPStore(
            "127.0.0.1",
            port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listening.detach(),
        )
        stillness = RanksStillness([process.pid for process in processes])
        run = _Run(processes, Matching(ranks), stillness)
        _go(run)
        del store
    return _outcome(run)


def _forked(
    seat: RankSettings,
    result: int,
    before: list[_Process],
    begin: Callable[[RankSettings, RankLink], NoReturn],
    *,
    is_quiet: bool,
) -> _Process:
    here, there = socket.socketpair()
    output = PrefixedOutput(f"[rank {seat.rank}] ", is_quiet=is_quiet)
    pid = fork()
    if pid == 0:
        here.close()
        for process in before:
            process.link.close()
            process.output.close()
        output.take_over()
        os.environ.update(seat.environment)
        begin(seat, RankLink(there, Down))
    there.close()
    output.let_go()
    return _Process(pid, RankLink(here, Up), result, os.pidfd_open(pid), output)


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
    for rank, process in _awaited(run):
        _hear(run, rank, process)
    for rank, process in enumerate(run.processes):
        if process.code is None and _has_ended(process):
            process.code = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        if process.code is not None:
            _hear_out(process)
            if not process.is_heard:
                _mourn(run, rank, process.code)
    _deliver(run)
    if not run.is_stopped and run.matching.is_still:
        _settle(run)
    elif not run.is_stopped and run.is_quiet:
        _look(run)
    _deliver(run)
    if run.is_stopped and time.monotonic() > run.stop_s:
        _kill(run)


def _look(run: _Run) -> None:
    """Nobody has said anything for long. Others may wait for who asks, in ways that nobody sees."""
    matching = run.matching
    if matching.go_on():
        return
    match run.stillness.look(matching.states):
        case Standstill.NO:
            matching.ask_where()
        case Standstill.IN_GROUP:
            run.findings = findings_in(matching)
            _stop(run)
        case Standstill.HANGS:
            run.is_hanging = True
            _stop(run)


def _awaited(run: _Run) -> list[tuple[int, _Process]]:
    """The ranks that have said something; what they print is printed on the way."""
    reads: dict[int, tuple[int, _Process]] = {}
    watched: list[int] = []
    for rank, process in run.living:
        watched += process.output.ends
        if process.is_heard:
            reads[process.link.fileno()] = (rank, process)
        if process.code is None:
            watched.append(process.ended)
    writes = [one.link.fileno() for _, one in run.living if one.is_heard and one.link.has_unsent]
    ready, free, _ = select.select([*reads, *watched], writes, [], QUIET_S)
    run.is_quiet = not ready and not free
    for _, process in run.living:
        if process.link.fileno() in free:
            process.link.flush()
        process.output.pass_on(ready)
    return [reads[end] for end in ready if end in reads]


def _hear(run: _Run, rank: int, process: _Process) -> None:
    told = process.link.receive()
    if told is None:
        process.is_heard = False
        return
    run.matching.take(rank, told)


def _hear_out(process: _Process) -> None:
    """Of a process that has ended: nothing more comes than what is there, whoever it leaves behind
    and holds its ends open.
    """
    ready, _, _ = select.select([process.link.fileno(), *process.output.ends], [], [], 0)
    process.is_heard &= process.link.fileno() in ready
    if not any(end in ready for end in process.output.ends):
        process.output.close()


def _has_ended(process: _Process) -> bool:
    ready, _, _ = select.select([process.ended], [], [], 0)
    return bool(ready)


def _mourn(run: _Run, rank: int, code: int) -> None:
    """The process of a rank is gone."""
    state = run.matching.states[rank]
    if state.is_gone:
        return
    how = f" by {signal.Signals(-code).name}" if code < 0 else f" with exit code {code}"
    is_early = state.order is None
    run.matching.end(rank, how)
    if is_early and code == _NOT_MODELLED:
        _stop(run)


def _deliver(run: _Run) -> None:
    mail, run.matching.mail = run.matching.mail, []
    for rank, message in mail:
        _post(run.processes[rank], message)


def _post(process: _Process, message: Message) -> None:
    if process.is_heard:
        process.link.post(message)


def _settle(run: _Run) -> None:
    """Nobody can go on."""
    matching = run.matching
    if matching.go_on():
        return
    if run.findings is None:
        run.findings = findings_in(matching)
    if not matching.is_over:
        _stop(run)
    elif not matching.release():
        matching.dismiss()


def _stop(run: _Run) -> None:
    """Ranks say what they have found, and end."""
    run.is_stopped, run.stop_s = True, time.monotonic() + STOP_S
    run.stood = [tuple(one.stack for one in state.places) for state in run.matching.states]
    run.matching.mail.clear()
    for process in run.processes:
        _post(process, StopMessage())


def _kill(run: _Run) -> None:
    for _, process in run.living:
        if process.code is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        process.output.close()


def _outcome(run: _Run) -> RanksOutcome:
    orders = [state.order or RankOrder() for state in run.matching.states]
    ordered = ordered_pairs(orders)
    ends = []
    for rank, process in enumerate(run.processes):
        data = os.pread(process.result, os.fstat(process.result).st_size, 0)
        end = RankEnding(
            code=process.code or 0,
            outcome=msgspec.Raw(data) if data else _NOTHING,
            ordered=ordered[rank],
            stood=run.stood[rank] if run.stood else (),
        )
        ends.append(end)
    return RanksOutcome(
        ranks=tuple(ends),
        findings=run.findings or (),
        is_stopped=run.is_stopped,
        is_hanging=run.is_hanging,
    )
