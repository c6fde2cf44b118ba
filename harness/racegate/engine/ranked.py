"""RankedEngine: one engine on each rank, which take their turns step by step.

All ranks issue a step before any processes one, so a rank's host never waits for what another has
not been given. How far a rank is really behind is a matter of its operations, and those are late
as long as a schedule holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import cast

import numpy as np

from racegate.device.protocol import Device, MeetingDevice
from racegate.engine.engine import AsyncEngine, run_to_end
from racegate.engine.observe.probe import Probe
from racegate.engine.observe.recording import RecordingProbe
from racegate.engine.parts import EngineParts
from racegate.engine.ranks.device import RankDevice, lane_of
from racegate.engine.ranks.meeting import Communicator, Seat
from racegate.engine.ranks.peers import TensorParallel
from racegate.engine.ranks.shards import shard_weights
from racegate.engine.state.lanes import Lane, lanes_of_rank
from racegate.history.observe import Observation
from racegate.history.run import EngineResult
from racegate.scenario.spec import OwnScenario


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSite:
    """What the engine of one rank is made of. device: makes the device as it sees it of its own"""

    device: Callable[[Device], Device]
    parts: EngineParts | None
    probe: Probe


class RankedEngine:
    """Engines of all ranks on one device. sites: by rank; weights: of the whole model"""

    def __init__(
        self,
        scenario: OwnScenario,
        device: MeetingDevice,
        sites: Sequence[RankSite],
        *,
        truth: Mapping[str, tuple[int, ...]],
        weights: Mapping[str, np.ndarray],
    ) -> None:
        self._scenario = scenario
        self._device = device
        streams = [device.stream(lane_of(Lane.COMPUTE, rank)) for rank in range(len(sites))]
        communicator = Communicator(device, streams)
        lanes = lanes_of_rank(scenario)
        self._engines: list[AsyncEngine] = []
        for rank, site in enumerate(sites):
            shards = shard_weights(scenario.model, weights, rank=rank, ranks=len(sites))
            seat = Seat(communicator, rank)
            self._device.turn(rank)
            self._engines.append(
                AsyncEngine(
                    scenario,
                    site.device(cast(Device, RankDevice(device, lanes, rank=rank))),
                    truth=truth,
                    parts=site.parts,
                    probe=site.probe,
                    weights=shards,
                    peers=partial(TensorParallel, seat=seat, lm_head=weights["lm_head"]),
                )
            )

    def run(self) -> EngineResult:
        """Runs until every request of all ranks has ended, or steps_max is reached."""
        return run_to_end(self, steps_max=self._scenario.steps_max)

    def step(self, step: int) -> None:
        """One iteration of each rank."""
        for engine in self._in_turn():
            engine.issue(step)
        for engine in self._in_turn():
            engine.settle(step)

    def _in_turn(self) -> Iterator[AsyncEngine]:
        for rank, engine in enumerate(self._engines):
            self._device.turn(rank)
            yield engine

    @property
    def is_done(self) -> bool:
        """Whether no rank has anything left to do."""
        return all(engine.is_done for engine in self._engines)

    def result(self, steps: int) -> EngineResult:
        """What rank 0 has delivered, as it is the one that answers."""
        return self._engines[0].result(steps)


class RankProbes:
    """The probes of all ranks, and what they observed: each observation of rank 0 with those of the
    others beside it.
    """

    def __init__(self, probes: Sequence[RecordingProbe]) -> None:
        self.probes = tuple(probes)

    @property
    def count(self) -> int:
        """How many observations have been begun."""
        return sum(probe.count for probe in self.probes)

    def observations(self, *, first: int = 0) -> tuple[Observation, ...]:
        """What was observed, from the `first` on and up to where the device got."""
        beside = zip_longest(*(probe.observations() for probe in self.probes))
        return tuple([seen for group in beside for seen in group if seen is not None])[first:]
