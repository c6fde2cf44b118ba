"""Subject: the engine on one scenario, and how it is run once under one schedule, on the virtual
device or on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar, cast

from racegate.check.limits import RunLimitError, limited_memory
from racegate.device.blocking import BlockingDevice, BlockingTurns
from racegate.device.chooser import HoldChooser
from racegate.device.cuda.pacing import Pacing
from racegate.device.cuda.site import CudaSite
from racegate.device.protocol import DeadlockError, Device, FootprintError, MeetingDevice
from racegate.device.recorder import NullRecorder
from racegate.device.stepping import Stepper
from racegate.device.virtual.compiled import host_backend
from racegate.device.virtual.device import VirtualDevice
from racegate.device.virtual.memo import OpMemo
from racegate.engine.engine import AsyncEngine
from racegate.engine.model.weights import make_weights
from racegate.engine.observe.probe import Probe
from racegate.engine.observe.recording import RecordingProbe
from racegate.engine.ranked import RankedEngine, RankProbes, RankSite
from racegate.engine.ranks.device import lane_of
from racegate.engine.ranks.meeting import MismatchError
from racegate.engine.state.edges import edges_kept_by
from racegate.engine.state.lanes import Lane, lanes_of, lanes_of_rank
from racegate.faults.fault import Fault
from racegate.history.run import EngineResult, Run
from racegate.history.schedule import EAGER, Schedule
from racegate.scenario.settings import DrafterKind
from racegate.scenario.spec import OwnScenario

# A defect may drive the engine against its own assertions: that is a finding, not a failure of
# the harness.
ENGINE_ERRORS = (
    DeadlockError,
    MismatchError,
    AssertionError,
    LookupError,
    ValueError,
    ArithmeticError,
    RunLimitError,
)


AnyDevice = TypeVar("AnyDevice", bound=VirtualDevice)


class LaunchMode(StrEnum):
    """async: as the engine issues them; blocking: the host waits for the whole device behind every
    operation it issues; of several ranks, behind what all have issued of a step.
    """

    ASYNC = "async"
    BLOCKING = "blocking"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How one run is made.

    stepper: takes every step by choice; is_audited: operations see only what they declare;
    memo: results of operations, shared between runs; on_landing: see HoldChooser. All four are of
    the virtual device.
    """

    schedule: Schedule = EAGER
    fault: Fault | None = None
    launches: LaunchMode = LaunchMode.ASYNC
    stepper: Stepper | None = None
    is_audited: bool = False
    memo: OpMemo | None = None
    on_landing: Callable[[str], None] | None = None


class Subject:
    """The engine on one scenario. truth: request -> the tokens that a scripted drafter proposes
    from.
    """

    def __init__(self, scenario: OwnScenario, truth: Mapping[str, tuple[int, ...]]) -> None:
        self.scenario = scenario
        self.lanes = lanes_of(scenario)
        self.truth = truth
        has_mtp = scenario.engine.drafter is DrafterKind.MTP
        self._weights = make_weights(scenario.model, has_mtp=has_mtp)

    @property
    def constants(self) -> tuple[object, ...]:
        """What all runs use and none changes: a checkpoint does not have to keep it."""
        return (self.scenario, self.truth, self._weights)

    def engine(
        self, device: Device, probe: Probe | RankProbes, fault: Fault | None
    ) -> AsyncEngine | RankedEngine:
        """The engine on a device, with or without a fault."""
        ranks = self.scenario.engine.ranks
        if isinstance(probe, RankProbes):
            return self._ranked(device, probe.probes, fault)
        if ranks > 1:
            return self._ranked(device, [probe] * ranks, fault)
        mode = self.scenario.engine.cache_mode
        parts = None if fault is None else fault.parts_of(mode, rank=0)
        return AsyncEngine(
            self.scenario,
            device if fault is None else fault.device(device),
            truth=self.truth,
            parts=parts,
            probe=probe,
            weights=self._weights,
        )

    def _ranked(self, device: Device, probes: Sequence[Probe], fault: Fault | None) -> RankedEngine:
        cache_mode = self.scenario.engine.cache_mode
        sites = [
            RankSite(
                device=_as_it_is if fault is None else fault.device,
                parts=None if fault is None else fault.parts_of(cache_mode, rank=rank),
                probe=probe,
            )
            for rank, probe in enumerate(probes)
        ]
        meeting = cast(MeetingDevice, device)
        return RankedEngine(self.scenario, meeting, sites, truth=self.truth, weights=self._weights)

    def probe(self, device: Device) -> RecordingProbe | RankProbes:
        """What observes the engine on a device."""
        if self.scenario.engine.ranks == 1:
            return RecordingProbe(self.scenario, device, device.stream(Lane.COMPUTE))
        return RankProbes(
            [
                RecordingProbe(
                    self.scenario, device, device.stream(lane_of(Lane.COMPUTE, rank)), rank=rank
                )
                for rank in range(self.scenario.engine.ranks)
            ]
        )

    def run_on(
        self,
        device: Device,
        settings: RunSettings,
        *,
        limit: AbstractContextManager[None],
    ) -> Run:
        """Runs the engine to its end, or until a defect or the audit stops it."""
        probe = self.probe(device)
        result: EngineResult | None = None
        stopped: Exception | None = None
        started = time.perf_counter()
        try:
            seen = self._as_launched(device, settings.launches)
            with limit:
                result = self.engine(seen, probe, settings.fault).run()
                device.finish()
        except (*ENGINE_ERRORS, FootprintError) as error:
            result, stopped = None, error
        seconds = time.perf_counter() - started
        return self.as_run(device, probe, result, stopped=stopped, seconds=seconds)

    def _as_launched(self, device: Device, launches: LaunchMode) -> Device:
        if launches is LaunchMode.ASYNC:
            return device
        if self.scenario.engine.ranks == 1:
            return cast(Device, BlockingDevice(device, self.lanes))
        names = lanes_of_rank(self.scenario)
        lanes = [
            [lane_of(name, rank) for name in names] for rank in range(self.scenario.engine.ranks)
        ]
        return cast(Device, BlockingTurns(cast(MeetingDevice, device), lanes))

    def as_run(
        self,
        device: Device,
        probe: RecordingProbe | RankProbes,
        result: EngineResult | None,
        *,
        stopped: Exception | None = None,
        seconds: float = 0.0,
    ) -> Run:
        """What a device and a probe hold after a run."""
        return Run(
            trace=device.trace(),
            observations=probe.observations(),
            edges=edges_kept_by(self.scenario.engine),
            result=result,
            stopped=stopped,
            seconds=seconds,
        )

    def run_bare(self) -> EngineResult:
        """Runs the engine without recording or observing anything: what the harness costs is
        measured against this.
        """
        recorder = NullRecorder(self.lanes)
        device = VirtualDevice(self.lanes, recorder=recorder, backend=host_backend())
        result = self.engine(device, Probe(), None).run()
        device.finish()
        return result


def _as_it_is(device: Device) -> Device:
    return device


class VirtualExecution:
    """Runs on the virtual device, each on one of its own.

    device: what results call it; options: of a command that runs there
    """

    device = "virtual"
    options: tuple[str, ...] = ()

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def run(self, settings: RunSettings) -> Run:
        device = virtual_device(VirtualDevice, self._subject.lanes, settings)
        return self._subject.run_on(device, settings, limit=limited_memory())


def virtual_device(
    kind: type[AnyDevice], lanes: tuple[str, ...], settings: RunSettings
) -> AnyDevice:
    """A device with the edges dropped and the kernels exchanged that a fault names."""
    fault = settings.fault
    holds = HoldChooser(settings.schedule, on_landing=settings.on_landing)
    return kind(
        lanes,
        chooser=holds if settings.stepper is None else settings.stepper,
        dropped=frozenset() if fault is None else fault.drops,
        backend=host_backend() if fault is None else fault.backend(host_backend()),
        is_audited=settings.is_audited,
        memo=settings.memo,
    )


class CudaExecution:
    """Runs on a GPU. The first run with or without a fault is rehearsed without holds: what is done
    for the first time (compiling and loading kernels, taking memory) waits for the whole device,
    and for its latches with it.
    """

    device = "cuda"

    def __init__(self, subject: Subject, site: CudaSite) -> None:
        self._subject = subject
        self._site = site
        self._rehearsed: set[str | None] = set()

    @property
    def options(self) -> tuple[str, ...]:
        """The device, and its pacing unless it is the usual one."""
        pacing = self._site.pacing
        device = "--device cuda"
        return (device,) if pacing is Pacing.EAGER else (device, f"--pacing {pacing}")

    def run(self, settings: RunSettings) -> Run:
        """One run. An audit and a memo mean nothing on a GPU."""
        assert settings.stepper is None, "only the virtual device can be stepped"
        name = None if settings.fault is None else settings.fault.name
        if name not in self._rehearsed:
            self._rehearsed.add(name)
            self._once(RunSettings(fault=settings.fault, launches=settings.launches))
        return self._once(settings)

    def _once(self, settings: RunSettings) -> Run:
        fault = settings.fault
        device = self._site.device(
            self._subject.lanes,
            schedule=settings.schedule,
            dropped=frozenset() if fault is None else fault.drops,
            exchange=None if fault is None else fault.backend,
        )
        try:
            # A GPU's driver maps more memory than it uses, and CUDA has its own watchdog.
            return self._subject.run_on(device, settings, limit=nullcontext())
        finally:
            device.close()
