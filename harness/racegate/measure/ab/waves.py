"""One wave of one arm: the engine with natural timing, nothing recorded, observed or held."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import msgspec

from racegate.check.expected import plain_tokens
from racegate.check.subject import ENGINE_ERRORS
from racegate.device.cuda.driver import CudaDriver
from racegate.device.cuda.pacing import Pacing
from racegate.device.cuda.site import CudaSite
from racegate.device.protocol import Device
from racegate.device.recorder import NullRecorder
from racegate.device.virtual.device import VirtualDevice
from racegate.engine.engine import AsyncEngine
from racegate.engine.state.lanes import lanes_of
from racegate.engine.state.tracked import Finish
from racegate.faults.fault import Fault
from racegate.history.run import EngineResult
from racegate.history.schedule import EAGER
from racegate.measure.ab.workload import AbError, AbSpec, Arm, scenario_of, truth_table
from racegate.scenario.spec import OwnScenario
from racegate.scenario.strict import StrictStruct
from racegate_kernels.backend import EAGER as EAGER_KERNELS

REHEARSED_TOKENS = 4


class TruthError(Exception):
    """The truth differs from the CPU reference: nothing that is compared with it means anything."""


class WaveSite(Protocol):
    """Where waves are run."""

    def opened(self, lanes: tuple[str, ...], fault: Fault | None) -> AbstractContextManager[Device]:
        """A device that records nothing, with the edges and kernels of a fault."""
        ...


class VirtualWaveSite:
    """The virtual device: everything lands at once. To try things out without a GPU."""

    @contextmanager
    def opened(self, lanes: tuple[str, ...], fault: Fault | None) -> Iterator[Device]:
        recorder = NullRecorder(lanes)
        if fault is None:
            yield VirtualDevice(lanes, recorder=recorder)
            return
        backend = fault.backend(EAGER_KERNELS)
        yield VirtualDevice(lanes, recorder=recorder, dropped=fault.drops, backend=backend)


class CudaWaveSite:
    """A GPU, with the pacing of its site."""

    def __init__(self, site: CudaSite) -> None:
        self._site = site

    @contextmanager
    def opened(self, lanes: tuple[str, ...], fault: Fault | None) -> Iterator[Device]:
        device = self._site.device(
            lanes,
            schedule=EAGER,
            dropped=frozenset() if fault is None else fault.drops,
            exchange=None if fault is None else fault.backend,
            recorder=NullRecorder(lanes),
        )
        try:
            yield device
        finally:
            device.close()


def cuda_wave_site(driver: CudaDriver) -> CudaWaveSite:
    """Natural timing on a GPU."""
    return CudaWaveSite(CudaSite(driver, pacing=Pacing.NATURAL))


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the engine. setup_seconds: until its first step; stopped: why it broke off."""

    result: EngineResult
    seconds: float
    setup_seconds: float
    stopped: str | None


class TruthWave(StrictStruct, frozen=True, kw_only=True):
    """A wave of the truth. checked: how many generations equal the CPU reference."""

    wave: int
    tokens: tuple[tuple[int, ...], ...]
    finished: tuple[Finish, ...]
    checked: int
    steps: int
    seconds: float
    setup_seconds: float
    counters: dict[str, int]
    environment: dict[str, str]


class ArmWave(StrictStruct, frozen=True, kw_only=True):
    """A wave of an arm, generation by generation.

    first_wrong: place of the first token that is not that of the truth, -1 if all are
    stopped: why the engine broke off; what it had not finished by then is lost
    """

    arm: Arm
    wave: int
    lengths: tuple[int, ...]
    finished: tuple[Finish, ...]
    first_wrong: tuple[int, ...]
    steps: int
    seconds: float
    setup_seconds: float
    counters: dict[str, int]
    stopped: str | None
    environment: dict[str, str]

    @property
    def wrong(self) -> int:
        """Finished generations that are not those of the truth."""
        pairs = zip(self.first_wrong, self.finished, strict=True)
        return sum(place >= 0 and finish is not Finish.UNFINISHED for place, finish in pairs)


def run_truth(site: WaveSite, plan: AbSpec, wave: int, environment: dict[str, str]) -> TruthWave:
    """The tokens that every arm has to deliver. Raises TruthError or AbError."""
    scenario = scenario_of(plan, wave, Arm.TRUTH)
    ran = run_engine(site, scenario, None, {})
    finished = finishes_of(scenario, ran.result)
    if ran.stopped is not None or Finish.UNFINISHED in finished:
        raise AbError(f"the truth of wave {wave} did not come to its end: {ran.stopped}")
    tokens = tokens_of(scenario, ran.result)
    return TruthWave(
        wave=wave,
        tokens=tokens,
        finished=finished,
        checked=check_truth(plan, wave, scenario, tokens),
        steps=ran.result.steps,
        seconds=ran.seconds,
        setup_seconds=ran.setup_seconds,
        counters=ran.result.counters,
        environment=environment,
    )


def check_truth(
    plan: AbSpec, wave: int, scenario: OwnScenario, tokens: tuple[tuple[int, ...], ...]
) -> int:
    """Compares the wave's part of the sample with plain decoding on the CPU; returns its size."""
    first = plan.indices(wave).start
    chosen = plan.checked_in(wave)
    for index in chosen:
        request, found = scenario.requests[index - first], tokens[index - first]
        expected = plain_tokens(scenario, request)
        place = first_difference(found, expected)
        if place >= 0:
            raise TruthError(
                f"{request.name} of wave {wave}: token {place} is not that of plain decoding on "
                f"the CPU ({len(found)} tokens delivered, {len(expected)} expected)"
            )
    return len(chosen)


def run_arm(
    site: WaveSite, plan: AbSpec, arm: Arm, truth: TruthWave, environment: dict[str, str]
) -> ArmWave:
    """The same requests through the engine of an arm, compared with the truth."""
    scenario = scenario_of(plan, truth.wave, arm)
    ran = run_engine(site, scenario, arm.fault, truth_table(scenario, truth.tokens))
    tokens = tokens_of(scenario, ran.result)
    return ArmWave(
        arm=arm,
        wave=truth.wave,
        lengths=tuple(len(found) for found in tokens),
        finished=finishes_of(scenario, ran.result),
        first_wrong=tuple(map(first_difference, tokens, truth.tokens)),
        steps=ran.result.steps,
        seconds=ran.seconds,
        setup_seconds=ran.setup_seconds,
        counters=ran.result.counters,
        stopped=ran.stopped,
        environment=environment,
    )


def rehearse(site: WaveSite, plan: AbSpec, arm: Arm) -> None:
    """A wave that ends soon: kernels are compiled and loaded, for the sizes of the real ones,
    before anything is timed.
    """
    scenario = scenario_of(plan, 0, arm)
    tokens = min(plan.max_tokens, REHEARSED_TOKENS)
    requests = tuple(
        msgspec.structs.replace(request, max_tokens=tokens) for request in scenario.requests
    )
    scenario = msgspec.structs.replace(scenario, requests=requests)
    run_engine(site, scenario, arm.fault, truth_table(scenario, ((),) * len(requests)))


def run_engine(
    site: WaveSite,
    scenario: OwnScenario,
    fault: Fault | None,
    truth: Mapping[str, tuple[int, ...]],
) -> Ran:
    """Runs the engine to its end, or until it stops by an assertion of its own."""
    # What an earlier run left behind is not collected, and its graphs not destroyed, within this.
    gc.collect()
    started = time.perf_counter()
    with site.opened(lanes_of(scenario), fault) as device:
        engine = make_engine(scenario, device, fault, truth)
        begun = time.perf_counter()
        steps, stopped = 0, None
        try:
            while steps < scenario.steps_max and not engine.is_done:
                engine.step(steps)
                steps += 1
            device.finish()
        except ENGINE_ERRORS as error:
            stopped = f"step {steps}: {type(error).__name__}: {error}"
        seconds = time.perf_counter() - begun
    return Ran(
        result=engine.result(steps),
        seconds=seconds,
        setup_seconds=begun - started,
        stopped=stopped,
    )


def make_engine(
    scenario: OwnScenario, device: Device, fault: Fault | None, truth: Mapping[str, tuple[int, ...]]
) -> AsyncEngine:
    """The engine of an arm on its device."""
    if fault is None:
        return AsyncEngine(scenario, device, truth=truth)
    parts = fault.parts(scenario.engine.cache_mode)
    return AsyncEngine(scenario, fault.device(device), truth=truth, parts=parts)


def tokens_of(scenario: OwnScenario, result: EngineResult) -> tuple[tuple[int, ...], ...]:
    """What was delivered, in the order of the requests."""
    return tuple(result.delivered[request.name] for request in scenario.requests)


def finishes_of(scenario: OwnScenario, result: EngineResult) -> tuple[Finish, ...]:
    """How each request ended, in the order of the requests."""
    return tuple(Finish(result.finished[request.name]) for request in scenario.requests)


def first_difference(found: tuple[int, ...], expected: tuple[int, ...]) -> int:
    """The first place where two generations differ, or where one of them ends; -1 if none."""
    if found == expected:
        return -1
    pairs = enumerate(zip(found, expected, strict=False))
    shorter = min(len(found), len(expected))
    return next((place for place, (token, other) in pairs if token != other), shorter)
