"""Witnesses run again, whatever they are of. Those that need the same engine or device share it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import TypeVar

import msgspec

from racegate.check.checker import Checkers
from racegate.check.repro.replay import replay
from racegate.device.cuda.pacing import Pacing
from racegate.device.cuda.site import CudaSite
from racegate.history.replayed import ReplaySummary
from racegate.history.witness import (
    ENGINE_WITNESSES,
    SealedWitness,
    Witness,
    read_object,
)
from racegate.interpose.debugger import LandingStop, standard_streams
from racegate.interpose.outcome import DeviceKind
from racegate.jobs.foreign.releases import OF_SGLANG, OF_VLLM, ReleaseKind, open_release
from racegate.jobs.stores.witnesses import reader_of
from racegate.scenario.errors import BadInputError
from racegate.targets.adapters.client import Adapter
from racegate.targets.adapters.process import Limits
from racegate.targets.adapters.witness import ADAPTER_WITNESSES, AdapterWitness, replay_adapter
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.client import RUN_S
from racegate.targets.common.witnesses.replay import replay_release
from racegate.targets.common.witnesses.witness import ReleaseWitness
from racegate.targets.program.launch import open_device
from racegate.targets.program.workflow.replay import replay_program
from racegate.targets.program.workflow.witness import PROGRAM_WITNESSES, ProgramWitness
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.engine import FreshEngines


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """How witnesses are replayed. Each option is of some subjects, and refused for others.

    times: how often each; device, pacing: the virtual device or a GPU
    timeout_s: seconds that one run may take, 0 for the subject's own limit
    release, checkout: of a release, another one than it was found in
    log: where an engine prints to, if not to standard error
    site: the GPU for our own engine, opened; checkers: of whoever looks at the runs again
    is_debugged: a debugger stops where held operations land
    """

    times: int = 1
    device: DeviceKind = DeviceKind.VIRTUAL
    pacing: Pacing = Pacing.EAGER
    timeout_s: float = 0.0
    release: str | None = None
    checkout: Path | None = None
    log: Path | None = None
    site: CudaSite | None = None
    checkers: Checkers = field(default_factory=Checkers)
    is_debugged: bool = False

    @property
    def asked(self) -> tuple[str, ...]:
        """Options that were given and that not every subject honours."""
        given = {
            "--device": self.device is not DeviceKind.VIRTUAL,
            "--pacing": self.pacing is not Pacing.EAGER,
            "--timeout": bool(self.timeout_s),
            "--release": self.release is not None,
            "--path": self.checkout is not None,
            "--log": self.log is not None,
            "--pdb": self.is_debugged,
        }
        return tuple(option for option, is_given in given.items() if is_given)


Kept = TypeVar("Kept", bound=SealedWitness)
Needed = TypeVar("Needed", bound=Hashable)
Numbered = Sequence[tuple[int, Path]]  # files with their places among all


@dataclass(frozen=True, slots=True)
class ReplayBatch:
    """Witnesses that share what has to be opened. numbers: places of their files among all

    replay: opens it, and replays them in this order
    """

    numbers: tuple[int, ...]
    replay: Callable[[], Iterator[ReplaySummary]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayKind:
    """How witnesses of a subject are replayed. honours: the options that it takes, beside --times

    batches: reads all files of the kind, and says who shares what
    """

    honours: frozenset[str]
    batches: Callable[[Numbered, ReplaySettings], Sequence[ReplayBatch]]


def replay_files(
    files: Sequence[Path],
    settings: ReplaySettings,
    *,
    on_done: Callable[[Path], None] = lambda file: None,
) -> list[ReplaySummary]:
    """The replays, in the order of the files. All files are read before anything runs.

    Raises BadInputError for a file that is no witness, or an option that its subject has no use for
    """
    asked: dict[str, list[tuple[int, Path]]] = {}
    for number, file in enumerate(files):
        asked.setdefault(_checked(file, settings), []).append((number, file))
    batches = [
        batch
        for subject, given in asked.items()
        for batch in REPLAY_KINDS[subject].batches(given, settings)
    ]
    found: dict[int, ReplaySummary] = {}
    for batch in batches:
        for number, replayed in zip(batch.numbers, batch.replay(), strict=True):
            found[number] = msgspec.structs.replace(replayed, file=files[number].name)
            on_done(files[number])
    return [found[number] for number in range(len(files))]


def _checked(file: Path, settings: ReplaySettings) -> str:
    """Of the witness in a file. Raises BadInputError, also for an option that it cannot use."""
    reader = reader_of(read_object(file), source=str(file))
    for option in settings.asked:
        if option not in REPLAY_KINDS[reader.of].honours:
            raise BadInputError(f"{file} is a witness of {reader.title}: {option} is not for these")
    return reader.of


def _batches(
    given: Numbered,
    read: Callable[[Path], Kept],
    needs: Callable[[Kept], Needed],
    replay_all: Callable[[Needed, Sequence[tuple[Path, Kept]]], Iterator[ReplaySummary]],
) -> list[ReplayBatch]:
    """One for everything that has to be opened. needs: what that is for a witness"""
    groups: dict[Needed, list[tuple[int, Path, Kept]]] = {}
    for number, file in given:
        witness = read(file)
        groups.setdefault(needs(witness), []).append((number, file, witness))
    return [
        ReplayBatch(
            tuple(number for number, _, _ in group),
            partial(replay_all, needed, [(file, witness) for _, file, witness in group]),
        )
        for needed, group in groups.items()
    ]


def _command(file: Path) -> str:
    """What replays a file again."""
    return f"racegate replay {quote(str(file))}"


def _nothing(witness: SealedWitness) -> None:
    """All share one."""


# Stepping through the engine passes over what the virtual device does.
_NOT_STEPPED = ("racegate.device.*", "racegate.jobs.*", "bdb", "contextlib")


def is_engine(frame: FrameType) -> bool:
    """Whether a frame is of our own engine."""
    return str(frame.f_globals.get("__name__", "")).startswith("racegate.engine.")


def _engines(given: Numbered, settings: ReplaySettings) -> list[ReplayBatch]:
    site = settings.site
    options = "" if site is None else f" --device cuda --pacing {settings.pacing}"

    debugger = LandingStop(is_engine, skipped=_NOT_STEPPED) if settings.is_debugged else None

    def replay_all(_: None, group: Sequence[tuple[Path, Witness]]) -> Iterator[ReplaySummary]:
        for file, witness in group:
            yield replay(
                witness,
                times=settings.times,
                command=_command(file) + options,
                cuda=site,
                checkers=settings.checkers,
                on_landing=None if debugger is None else debugger.stop,
            )

    return _batches(given, ENGINE_WITNESSES.load, _nothing, replay_all)


def _programs(given: Numbered, settings: ReplaySettings) -> list[ReplayBatch]:
    again = partial(replay_program, times=settings.times, timeout_s=settings.timeout_s)

    def replay_all(
        _: None, group: Sequence[tuple[Path, ProgramWitness]]
    ) -> Iterator[ReplaySummary]:
        streams = standard_streams() if settings.is_debugged else nullcontext("")
        with streams as debugger, open_device(settings.device) as device:
            for _file, witness in group:
                yield again(device, witness, debugger=debugger)

    return _batches(given, PROGRAM_WITNESSES.load, _nothing, replay_all)


def _cell(cell: EngineCell, settings: ReplaySettings) -> EngineCell:
    """The engine in which a witness is replayed: its own, or another release or checkout of it."""
    if settings.release is not None:
        cell = msgspec.structs.replace(cell, release=settings.release, checkout=None)
    if settings.checkout is not None:
        cell = msgspec.structs.replace(cell, checkout=str(settings.checkout))
    if not cell.release:
        raise BadInputError(
            f"it was found in the checkout {cell.checkout}: racegate replay FILE --release X "
            f"--path {cell.checkout}, with the release nearest to it"
        )
    return cell


def _releases(kind: ReleaseKind, given: Numbered, settings: ReplaySettings) -> list[ReplayBatch]:
    run_s = settings.timeout_s or RUN_S
    again = partial(replay_release, times=settings.times)

    def replay_all(
        cell: EngineCell, group: Sequence[tuple[Path, ReleaseWitness]]
    ) -> Iterator[ReplaySummary]:
        if settings.device is DeviceKind.CUDA and isinstance(cell, Cell):
            engines = FreshEngines(cell, log=settings.log, run_s=run_s)
            for file, witness in group:
                command = f"{_command(file)} --device cuda"
                yield again(engines, witness, cell, command=command, kind=settings.device)
            return
        with open_release(cell, log=settings.log, run_s=run_s) as opened:
            pulses = opened.sensitivity()
            for file, witness in group:
                yield again(opened.runs, witness, cell, command=_command(file), sensitivity=pulses)

    def needs(witness: ReleaseWitness) -> EngineCell:
        return _cell(witness.subject, settings)

    return _batches(given, kind.reader.load, needs, replay_all)


def _adapters(given: Numbered, settings: ReplaySettings) -> list[ReplayBatch]:
    limits = Limits()
    if settings.timeout_s:
        limits = msgspec.structs.replace(limits, timeout_s=settings.timeout_s)

    def replay_all(
        needed: tuple[tuple[str, ...], str], group: Sequence[tuple[Path, AdapterWitness]]
    ) -> Iterator[ReplaySummary]:
        command, folder = needed
        with Adapter(command, limits=limits, folder=Path(folder) if folder else None) as adapter:
            for file, witness in group:
                again = _command(file)
                yield replay_adapter(adapter, witness, times=settings.times, command=again)

    def needs(witness: AdapterWitness) -> tuple[tuple[str, ...], str]:
        return witness.subject.command, witness.subject.folder

    return _batches(given, ADAPTER_WITNESSES.load, needs, replay_all)


RELEASE_OPTIONS = frozenset({"--timeout", "--release", "--path", "--log"})
REPLAY_KINDS = {
    "engine": ReplayKind(
        honours=frozenset({"--device", "--pacing", "--pdb"}),
        batches=_engines,
    ),
    "program": ReplayKind(
        honours=frozenset({"--device", "--timeout", "--pdb"}),
        batches=_programs,
    ),
    "vllm": ReplayKind(
        honours=RELEASE_OPTIONS | {"--device"},
        batches=partial(_releases, OF_VLLM),
    ),
    "sglang": ReplayKind(
        honours=RELEASE_OPTIONS,
        batches=partial(_releases, OF_SGLANG),
    ),
    "adapter": ReplayKind(
        honours=frozenset({"--timeout"}),
        batches=_adapters,
    ),
}
