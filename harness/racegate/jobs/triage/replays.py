"""Witnesses run again, whatever they are of. Those that need the same engine or device share it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

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
from racegate.targets.common.replay import replay_release
from racegate.targets.common.witness import ReleaseWitness
from racegate.targets.program.launch import open_device
from racegate.targets.program.workflow.replay import replay_program
from racegate.targets.program.workflow.witness import ProgramWitness, load_program_witness
from racegate.targets.sglang.engine import open_plain_scheduler
from racegate.targets.sglang.witness import read_scheduler_witness
from racegate.targets.vllm.engine import fresh_engines, open_cell
from racegate.targets.vllm.sensitivity import sensitivity_of
from racegate.targets.vllm.witness import read_witness


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


Given = Sequence[tuple[Path, Any]]  # files, each with the witness in it
Replayer = Callable[[Given, ReplaySettings], Iterator[ReplaySummary]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayKind:
    """What can be replayed. name: in words; honours: the options that it takes, beside --times

    read: the witness in a file; needs: what has to be opened for it, the same for those that share
    it; replay: of those that share it, in order
    """

    name: str
    honours: frozenset[str]
    read: Callable[[Path], SealedWitness]
    needs: Callable[[Any, ReplaySettings], Hashable]
    replay: Replayer


def replay_files(
    files: Sequence[Path],
    settings: ReplaySettings,
    *,
    on_done: Callable[[Path], None] = lambda file: None,
) -> list[ReplaySummary]:
    """The replays, in the order of the files. All files are read before anything runs.

    Raises BadInputError for a file that is no witness, or an option that its subject has no use for
    """
    kinds = [kind_of(file, settings) for file in files]
    witnesses = [kind.read(file) for file, kind in zip(files, kinds, strict=True)]
    groups: dict[tuple[str, Hashable], list[int]] = {}
    for index, (kind, witness) in enumerate(zip(kinds, witnesses, strict=True)):
        groups.setdefault((kind.name, kind.needs(witness, settings)), []).append(index)
    found: dict[int, ReplaySummary] = {}
    for indices in groups.values():
        given = [(files[index], witnesses[index]) for index in indices]
        for index, replayed in zip(indices, kinds[indices[0]].replay(given, settings), strict=True):
            found[index] = msgspec.structs.replace(replayed, file=files[index].name)
            on_done(files[index])
    return [found[index] for index in range(len(files))]


def kind_of(file: Path, settings: ReplaySettings) -> ReplayKind:
    """Of the witness in a file. Raises BadInputError, also for an option that it has no use for."""
    subject = subject_of(read_object(file), source=str(file))
    kind = REPLAYABLE.get(subject)
    if kind is None:
        known = ", ".join(REPLAYABLE)
        raise BadInputError(f"{file}: a witness of {quoted(subject)}, which is none of {known}")
    for option in settings.asked:
        if option not in kind.honours:
            raise BadInputError(f"{file} is a witness of {kind.name}: {option} is not for these")
    return kind


def _nothing(witness: SealedWitness, settings: ReplaySettings) -> Hashable:
    """All share one."""
    return None


def _replay_engine(given: Given, settings: ReplaySettings) -> Iterator[ReplaySummary]:
    site = settings.site
    options = "" if site is None else f" --device cuda --pacing {settings.pacing}"
    witness: Witness
    for file, witness in given:
        yield replay(
            witness,
            times=settings.times,
            command=f"racegate replay {file}{options}",
            cuda=site,
            checkers=settings.checkers,
        )


def _replay_programs(given: Given, settings: ReplaySettings) -> Iterator[ReplaySummary]:
    witness: ProgramWitness
    with open_device(settings.device) as device:
        for _, witness in given:
            yield replay_program(
                device, witness, times=settings.times, timeout_s=settings.timeout_s
            )


def _cell(witness: ReleaseWitness, settings: ReplaySettings) -> EngineCell:
    """The engine in which a witness is replayed: its own, or another release or checkout of it."""
    cell = witness.subject
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


def _replay_vllm(given: Given, settings: ReplaySettings) -> Iterator[ReplaySummary]:
    cell: Any = _cell(given[0][1], settings)
    run_s = settings.timeout_s or RUN_S
    again = partial(replay_release, cell=cell, subject="vllm", times=settings.times)
    if settings.device is DeviceKind.CUDA:
        engines = fresh_engines(cell, log=settings.log, run_s=run_s)
        for _, witness in given:
            yield again(engines, witness, kind=settings.device)
        return
    with open_cell(cell, log=settings.log, run_s=run_s) as engine:
        pulses = sensitivity_of(engine)
        for _, witness in given:
            yield again(engine, witness, sensitivity=pulses)


def _replay_sglang(given: Given, settings: ReplaySettings) -> Iterator[ReplaySummary]:
    cell: Any = _cell(given[0][1], settings)
    run_s = settings.timeout_s or RUN_S
    with open_plain_scheduler(cell, log=settings.log, run_s=run_s) as engine:
        for _, witness in given:
            yield replay_release(engine, witness, cell, "sglang", times=settings.times)


def _replay_adapters(given: Given, settings: ReplaySettings) -> Iterator[ReplaySummary]:
    witness: AdapterWitness = given[0][1]
    limits = Limits()
    if settings.timeout_s:
        limits = msgspec.structs.replace(limits, timeout_s=settings.timeout_s)
    with Adapter(witness.subject.command, limits=limits) as adapter:
        for _, witness in given:
            yield replay_adapter(adapter, witness, times=settings.times)


def _command(witness: AdapterWitness, settings: ReplaySettings) -> Hashable:
    return witness.subject.command


RELEASE_OPTIONS = frozenset({"--timeout", "--release", "--path", "--log"})
REPLAYABLE = {
    "engine": ReplayKind(
        name="racegate's own engine",
        honours=frozenset({"--device", "--pacing"}),
        read=load_witness,
        needs=_nothing,
        replay=_replay_engine,
    ),
    "program": ReplayKind(
        name="a program",
        honours=frozenset({"--device", "--timeout"}),
        read=load_program_witness,
        needs=_nothing,
        replay=_replay_programs,
    ),
    "vllm": ReplayKind(
        name="a vLLM release",
        honours=RELEASE_OPTIONS | {"--device"},
        read=read_witness,
        needs=_cell,
        replay=_replay_vllm,
    ),
    "sglang": ReplayKind(
        name="an SGLang release",
        honours=RELEASE_OPTIONS,
        read=read_scheduler_witness,
        needs=_cell,
        replay=_replay_sglang,
    ),
    "adapter": ReplayKind(
        name="an engine behind an adapter",
        honours=frozenset({"--timeout"}),
        read=read_adapter_witness,
        needs=_command,
        replay=_replay_adapters,
    ),
}
