"""Witnesses run again, whatever they are of. Those that need the same engine or device share it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TypeVar

import msgspec

from racegate.check.checker import Checkers
from racegate.check.repro.replay import replay
from racegate.device.cuda.pacing import Pacing
from racegate.device.cuda.site import CudaSite
from racegate.history.replayed import ReplaySummary
from racegate.history.witness import SealedWitness, Witness, load_witness, read_object, subject_of
from racegate.interpose.outcome import DeviceKind
from racegate.scenario.errors import BadInputError
from racegate.scenario.untrusted.text import quoted
from racegate.targets.adapters.client import Adapter
from racegate.targets.adapters.process import Limits
from racegate.targets.adapters.witness import AdapterWitness, read_adapter_witness, replay_adapter
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.client import RUN_S
from racegate.targets.common.witnesses.replay import replay_release
from racegate.targets.program.launch import open_device
from racegate.targets.program.workflow.replay import replay_program
from racegate.targets.program.workflow.witness import ProgramWitness, load_program_witness
from racegate.targets.sglang.cell import SchedulerCell
from racegate.targets.sglang.engine import open_plain_scheduler
from racegate.targets.sglang.witness import SchedulerWitness, read_scheduler_witness
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.engine import fresh_engines, open_cell
from racegate.targets.vllm.sensitivity import sensitivity_of
from racegate.targets.vllm.witness import EngineWitness, read_witness


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """How witnesses are replayed. Each option is of some subjects, and refused for others.

    times: how often each; device, pacing: the virtual device or a GPU
    timeout_s: seconds that one run may take, 0 for the subject's own limit
    release, checkout: of a release, another one than it was found in
    log: where an engine prints to, if not to standard error
    site: the GPU for our own engine, opened; checkers: of whoever looks at the runs again
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
        }
        return tuple(option for option, is_given in given.items() if is_given)


Kept = TypeVar("Kept", bound=SealedWitness)
Cells = TypeVar("Cells", bound=EngineCell)
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
    """What can be replayed. name: in words; honours: the options that it takes, beside --times

    read: the witness in a file; batches: reads all files of the kind, and says who shares what
    """

    name: str
    honours: frozenset[str]
    read: Callable[[Path], SealedWitness]
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
    subject = subject_of(read_object(file), source=str(file))
    kind = REPLAY_KINDS.get(subject)
    if kind is None:
        known = ", ".join(REPLAY_KINDS)
        raise BadInputError(f"{file}: a witness of {quoted(subject)}, which is none of {known}")
    for option in settings.asked:
        if option not in kind.honours:
            raise BadInputError(f"{file} is a witness of {kind.name}: {option} is not for these")
    return subject


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


def _engines(given: Numbered, settings: ReplaySettings) -> list[ReplayBatch]:
    site = settings.site
    options = "" if site is None else f" --device cuda --pacing {settings.pacing}"

    def replay_all(_: None, group: Sequence[tuple[Path, Witness]]) -> Iterator[ReplaySummary]:
        for file, witness in group:
            yield replay(
                witness,
                times=settings.times,
                command=_command(file) + options,
                cuda=site,
                checkers=settings.checkers,
            )

    return _batches(given, load_witness, _nothing, replay_all)


def _programs(given: Numbered, settings: ReplaySettings) -> list[ReplayBatch]:
    again = partial(replay_program, times=settings.times, timeout_s=settings.timeout_s)

    def replay_all(
        _: None, group: Sequence[tuple[Path, ProgramWitness]]
    ) -> Iterator[ReplaySummary]:
        with open_device(settings.device) as device:
            for _file, witness in group:
                yield again(device, witness)

    return _batches(given, load_program_witness, _nothing, replay_all)


def _cell(cell: Cells, settings: ReplaySettings) -> Cells:
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


def _vllm(given: Numbered, settings: ReplaySettings) -> list[ReplayBatch]:
    run_s = settings.timeout_s or RUN_S
    again = partial(replay_release, times=settings.times)

    def replay_all(
        cell: Cell, group: Sequence[tuple[Path, EngineWitness]]
    ) -> Iterator[ReplaySummary]:
        if settings.device is DeviceKind.CUDA:
            engines = fresh_engines(cell, log=settings.log, run_s=run_s)
            for file, witness in group:
                command = f"{_command(file)} --device cuda"
                yield again(engines, witness, cell, command=command, kind=settings.device)
            return
        with open_cell(cell, log=settings.log, run_s=run_s) as engine:
            pulses = sensitivity_of(engine)
            for file, witness in group:
                yield again(engine, witness, cell, command=_command(file), sensitivity=pulses)

    return _batches(given, read_witness, lambda one: _cell(one.subject, settings), replay_all)


def _sglang(given: Numbered, settings: ReplaySettings) -> list[ReplayBatch]:
    run_s = settings.timeout_s or RUN_S

    def replay_all(
        cell: SchedulerCell, group: Sequence[tuple[Path, SchedulerWitness]]
    ) -> Iterator[ReplaySummary]:
        with open_plain_scheduler(cell, log=settings.log, run_s=run_s) as engine:
            for file, witness in group:
                yield again(engine, witness, cell, command=_command(file))

    again = partial(replay_release, times=settings.times)
    needs = partial(_scheduler, settings=settings)
    return _batches(given, read_scheduler_witness, needs, replay_all)


def _scheduler(witness: SchedulerWitness, settings: ReplaySettings) -> SchedulerCell:
    return _cell(witness.subject, settings)


def _adapters(given: Numbered, settings: ReplaySettings) -> list[ReplayBatch]:
    limits = Limits()
    if settings.timeout_s:
        limits = msgspec.structs.replace(limits, timeout_s=settings.timeout_s)

    def replay_all(
        command: tuple[str, ...], group: Sequence[tuple[Path, AdapterWitness]]
    ) -> Iterator[ReplaySummary]:
        with Adapter(command, limits=limits) as adapter:
            for file, witness in group:
                command_again = _command(file)
                yield replay_adapter(adapter, witness, times=settings.times, command=command_again)

    return _batches(given, read_adapter_witness, lambda one: one.subject.command, replay_all)


RELEASE_OPTIONS = frozenset({"--timeout", "--release", "--path", "--log"})
REPLAY_KINDS = {
    "engine": ReplayKind(
        name="racegate's own engine",
        honours=frozenset({"--device", "--pacing"}),
        read=load_witness,
        batches=_engines,
    ),
    "program": ReplayKind(
        name="a program",
        honours=frozenset({"--device", "--timeout"}),
        read=load_program_witness,
        batches=_programs,
    ),
    "vllm": ReplayKind(
        name="a vLLM release",
        honours=RELEASE_OPTIONS | {"--device"},
        read=read_witness,
        batches=_vllm,
    ),
    "sglang": ReplayKind(
        name="an SGLang release",
        honours=RELEASE_OPTIONS,
        read=read_scheduler_witness,
        batches=_sglang,
    ),
    "adapter": ReplayKind(
        name="an engine behind an adapter",
        honours=frozenset({"--timeout"}),
        read=read_adapter_witness,
        batches=_adapters,
    ),
}
