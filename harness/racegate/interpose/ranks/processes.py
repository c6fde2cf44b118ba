"""The processes of a run of ranks, as their leader has them: those that it forks, and those that
the program starts itself, which knock at its door.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec

from racegate.interpose.program.leftovers import fork
from racegate.interpose.program.processes import DOOR, PLACE
from racegate.interpose.ranks.group.kinds import MAIN
from racegate.interpose.ranks.group.messages import Down, HelloMessage, RankLink, SeatMessage, Up
from racegate.interpose.ranks.printing import PrefixedOutput

_PEER = struct.Struct("3i")  # process, user, group


class RankSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a process needs to be a rank. rank: its number, below 0 if it may be none; ranks: how
    many there are, 0 if the program starts them itself; port: of the store of the process group
    place: which of all processes of the run it is

    result: a file that is there, for its outcome; stacks: a folder, for where it stands; door: by
    which processes come in that it starts
    """

    rank: int
    place: int
    ranks: int
    gpus: int
    result: str
    stacks: str
    door: str
    port: int = 0

    @property
    def environment(self) -> dict[str, str]:
        """Its own variables; of a rank as `torchrun --standalone --nproc-per-node N` gives them."""
        gpus = ",".join(map(str, range(self.gpus)))
        own = {DOOR: self.door, PLACE: str(self.place), "CUDA_VISIBLE_DEVICES": gpus}
        if not self.ranks:
            return own
        rank, ranks = str(self.rank), str(self.ranks)
        return own | {
            "RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank, "GROUP_RANK": "0",
            "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "ROLE_WORLD_SIZE": ranks,
            "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "default",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port),
            "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": "racegate", "TORCHELASTIC_USE_AGENT_STORE": "True",
            "OMP_NUM_THREADS": "1",
        }  # fmt: skip


Begin = Callable[[RankSettings, RankLink], NoReturn]


@dataclass(slots=True)
class RankProcess:
    """A process, as its leader has it. ended: becomes readable when it has; code: of its end, 0 of
    one that the program started, which tells that to the program alone
    """

    pid: int
    link: RankLink
    result: int
    ended: int
    output: PrefixedOutput
    is_forked: bool = True
    code: int | None = None
    is_heard: bool = True

    @property
    def is_living(self) -> bool:
        """Whether it has not ended, or has not been heard to its end."""
        return self.code is None or self.is_heard or self.output.is_open

    def look(self) -> None:
        """Whether it has ended by now."""
        ready, _, _ = select.select([self.ended], [], [], 0)
        if self.code is None and ready:
            is_ours = self.is_forked
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]) if is_ours else 0

    def hear_out(self) -> None:
        """Of one that has ended: nothing more comes than what is there, whoever it leaves behind
        and holds its ends open.
        """
        ready, _, _ = select.select([self.link.fileno(), *self.output.ends], [], [], 0)
        self.is_heard &= self.link.fileno() in ready
        if not any(end in ready for end in self.output.ends):
            self.output.close()

    def hang_up(self) -> None:
        """It has said all that it will say."""
        self.is_heard = False

    def kill(self) -> None:
        """At once."""
        if self.code is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.ended, signal.SIGKILL)
        self.output.close()

    def outcome(self) -> bytes:
        """What it wrote; empty: nothing."""
        return os.pread(self.result, os.fstat(self.result).st_size, 0)


class RankServer:
    """Gives each process what it needs. stacks: a folder for all; gpus: that each sees

    job: what a process is to do that the program started, as JSON
    """

    def __init__(
        self, stacks: Path, *, ranks: int, gpus: int, job: Callable[[RankSettings], bytes]
    ) -> None:
        self._stacks, self._ranks, self._gpus, self._job = stacks, ranks, gpus, job
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind("")  # a name of this machine's network that no file stands for
        self._door.listen()
        self._results: list[int] = []

    @property
    def door(self) -> int:
        """For `select`: somebody has knocked."""
        return self._door.fileno()

    def seat(self, rank: int, *, port: int = 0) -> RankSettings:
        """For one more process."""
        folder = self._stacks / f"rank-{len(self._results)}"
        folder.mkdir()
        self._results.append(os.memfd_create(f"racegate-rank-{rank}"))
        return RankSettings(
            rank=rank,
            place=len(self._results) - 1,
            ranks=self._ranks,
            gpus=self._gpus,
            port=port,
            result=f"/proc/{os.getpid()}/fd/{self._results[-1]}",
            stacks=str(folder),
            door=self._door.getsockname()[1:].decode(),
        )

    def fork(
        self, seat: RankSettings, before: Sequence[RankProcess], begin: Begin, *, is_quiet: bool
    ) -> RankProcess:
        """A rank, or the program itself. begin: what it does; before: whose ends it closes"""
        here, there = socket.socketpair()
        output = PrefixedOutput(f"[rank {seat.rank}] ", is_quiet=is_quiet or seat.rank == MAIN)
        pid = fork()
        if pid == 0:
            here.close()
            self._door.close()
            for process in before:
                process.link.close()
                process.output.close()
            output.take_over()
            os.environ.update(seat.environment)
            begin(seat, RankLink(there, Down))
        there.close()
        output.let_go()
        return RankProcess(pid, RankLink(here, Up), self._results[-1], os.pidfd_open(pid), output)

    def let_in(self, number: Callable[[HelloMessage], int]) -> tuple[int, RankProcess] | None:
        """Whoever has knocked: its number, and itself; None if it was nobody of ours."""
        end, _ = self._door.accept()
        pid, user, _ = _PEER.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        link = RankLink(end, Up)
        told = link.receive() if user == os.getuid() else None
        if not isinstance(told, HelloMessage):
            link.close()
            return None
        rank = number(told)
        seat = self.seat(rank)
        link.send(SeatMessage(place=seat.place, job=self._job(seat)))
        output = PrefixedOutput("", is_quiet=True)
        ended = os.pidfd_open(pid)
        return rank, RankProcess(pid, link, self._results[-1], ended, output, is_forked=False)
