"""What one run of a program gave, as data: written by the run, read by the launcher."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from itertools import zip_longest

import msgspec

from racegate.history.finding import KernelTotal, Race
from racegate.history.schedule import AccessPlace, Holds
from racegate.interpose.gpus import GpuFacts
from racegate.interpose.ranks.group.findings import RankFinding
from racegate.order.recorder import WaitTotal

DEVICE = "RACEGATE_DEVICE"  # environment: which device the process stands up


class Ending(StrEnum):
    """How the program ended.

    FINISHED: its script came to its end; FAILED: it raised, or ended with an exit code
    NOT_MODELLED: it asked CUDA for something that nobody answers for
    LOST: its process was gone before its script was over: a signal, or `os._exit`
    TIMED_OUT: it took longer than it had; INTERRUPTED: the user stopped it
    STUCK: its ranks wait for what cannot come, or disagree so that nothing can
    """

    FINISHED = "finished"
    FAILED = "failed"
    NOT_MODELLED = "not modelled"
    LOST = "lost"
    TIMED_OUT = "timed out"
    INTERRUPTED = "interrupted"
    STUCK = "stuck"


class DeviceKind(StrEnum):
    """VIRTUAL: host memory, on any machine. CUDA: a real GPU, recorded and held by latches."""

    VIRTUAL = "virtual"
    CUDA = "cuda"


class CompileMode(StrEnum):
    """How regions run that the program gives to `torch.compile`.

    INDUCTOR: as they were compiled, Inductor's kernels under Triton's interpreter
    EAGER: as the Python that they were compiled from
    """

    INDUCTOR = "inductor"
    EAGER = "eager"


Sources = tuple[tuple[str, str], ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is made. polls: how many queries are first answered "not ready".

    log: a file for all that is recorded, as JSON (`RecordedRun`), to which each of several ranks
        adds a line; empty for none; rank: which of them this is

    debugger: the socket of one that stops where a held operation lands, empty for none

    Of a real GPU: settles: what is not held runs at once, as on the virtual device (a run with
    holds always does); hold_limit_s: how long a latch may stand.
    """

    holds: Holds = ()
    polls: int = 0
    is_recording: bool = True
    log: str = ""
    rank: int | None = None
    settles: bool = False
    hold_limit_s: float = 10.0
    debugger: str = ""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What the device is told: run this program under this plan, and write the outcome there.

    result: a file that is there; stacks: the folder for where it stands when its time is over
    timeout_s: 0 for none; suppressed: signatures that the program's own tests pass over
    memory_bytes: what the virtual device has, 0 for what its GPU has
    gpu: which of `GPUS` it says that it is; empty for none of them, with half of the host's memory
    ranks: as how many ranks it runs, each a process; 0: as one process without ranks
    gpus: how many the program sees, 0: one, or one for each rank
    path: a folder whose packages come before all others; empty for none
    compiling: how compiled regions run; None: as they were compiled where this torch and this
        device can; compiles: the program is known to have some, so the compiler is imported once
        for this run and those behind it
    sources: texts that are read in the place of files, by absolute path; nothing on disk changes
    stdout: the file that a quiet run prints to, empty for none
    """

    argv: tuple[str, ...]
    plan: Plan
    result: str
    stacks: str = ""
    timeout_s: float = 0.0
    memory_bytes: int = 0
    gpu: str = ""
    ranks: int = 0
    gpus: int = 0
    path: str = ""
    compiling: CompileMode | None = None
    compiles: bool = False
    suppressed: tuple[str, ...] = ()
    is_quiet: bool = False
    sources: Sources = ()
    stdout: str = ""

    @property
    def is_led(self) -> bool:
        """Whether its processes have a leader, which those come to that the program starts."""
        return bool(self.ranks or self.gpus)


class Observation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the program marked as not to depend on the schedule.

    name: what the program calls it; digest: of its bytes; preview: its beginning as text
    is_agreed: all ranks are to have the same
    """

    name: str
    digest: str
    preview: str
    is_agreed: bool = False


PLACE = "__racegate_place__"  # what a text calls to say that it is there


class PlaceSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What the program's own names are at a place where a run with other sources asked.

    current: names of the lanes that were the current stream there
    streams: by the name of a lane, expressions that were this stream whenever it was in scope
    tensors: expressions that were tensors of the device, of those that were asked for
    """

    current: tuple[str, ...] = ()
    streams: dict[str, tuple[str, ...]] = {}
    tensors: tuple[str, ...] = ()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one run of a program.

    ending: how it ended; exit_code: the script's own; message: why, if it did not finish
    work: operations, memory and accesses of pinned memory that the program gave its device; None
        where nobody counted
    work_of_children: likewise, that forked children gave it, which is computed and not judged
    events: operations, accesses, records and waits that were recorded
    findings: pairs of places that nothing orders; observations: what the program marked, in order
    not_seen: what the verdict does not cover, by kind, and how often
    positions: where the accesses of findings stand, by their labels
    realised: hold to how often it kept an operation back; torch_version: of the program's torch
    gpu: what the device said of itself, where a program could ask
    compiled_regions: graphs that `torch.compile` made of the program's code, which ran as compiled
    ranks: as how many it ran, 0 as one process; disagreements: what these did wrong together
    imported: modules that came from the folder of its job
    places: what was in scope where a run with other sources asked, by the key it asked with
    waits: of a run with other sources, what each wait cost, by its `file:line`
    kernels: the Triton kernels that it launched, in the order of their first launch
    """

    ending: Ending
    exit_code: int = 0
    message: str = ""
    work: int | None = None
    work_of_children: int = 0
    events: int = 0
    findings: tuple[Race, ...] = ()
    observations: tuple[Observation, ...] = ()
    not_seen: dict[str, int] = {}
    positions: dict[str, AccessPlace] = {}
    realised: dict[str, int] = {}
    torch_version: str = ""
    gpu: GpuFacts | None = None
    compiled_regions: int = 0
    ranks: int = 0
    disagreements: tuple[RankFinding, ...] = ()
    imported: int = 0
    places: dict[str, PlaceSeen] = {}
    waits: dict[str, WaitTotal] = {}
    kernels: tuple[KernelTotal, ...] = ()

    @property
    def seen(self) -> tuple[object, ...]:
        """What must be the same under every schedule."""
        return (self.ending, self.exit_code, self.observations)

    @property
    def is_decided(self) -> bool:
        """Whether it came to an end that says something about the program. One that waits for a
        value without a wait ends when the hold does.
        """
        return self.ending not in UNDECIDED

    @property
    def is_comparable(self) -> bool:
        """Whether what differs from a run without holds is the doing of its holds."""
        return self.is_decided

    @property
    def is_wrong(self) -> bool:
        """Whether it is wrong by itself, whatever other runs are: nobody knows of a program."""
        return False

    def differs(self, base: Outcome, *, unstable: Collection[str] = ()) -> bool:
        """Whether something else is observed than in another run, or it ends otherwise.

        unstable: names of observations that are not compared
        """
        if (self.ending, self.exit_code) != (base.ending, base.exit_code):
            return True
        return not changed(base.observations, self.observations) <= set(unstable)


UNDECIDED = (Ending.TIMED_OUT, Ending.NOT_MODELLED, Ending.INTERRUPTED)


def changed(one: tuple[Observation, ...], other: tuple[Observation, ...]) -> set[str]:
    """Names of observations that differ, by their order."""
    names: set[str] = set()
    for a, b in zip_longest(one, other):
        if a is None or b is None or (a.name, a.digest) != (b.name, b.digest):
            names |= {item.name for item in (a, b) if item is not None}
    return names
