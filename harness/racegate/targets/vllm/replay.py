"""A witness again: its landing in a new engine."""

from __future__ import annotations

import os
from pathlib import Path

from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import DeviceKind
from racegate.targets.common.judge import EngineVerdict, judge_under
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.engine import FreshEngines, open_engine
from racegate.targets.vllm.environment import environment_of
from racegate.targets.vllm.sensitivity import sensitivity_of
from racegate.targets.vllm.witness import EngineWitness


def judge_again(
    witness: EngineWitness,
    *,
    release: str | None = None,
    checkout: Path | None = None,
    log: Path | None = None,
    kind: DeviceKind = DeviceKind.VIRTUAL,
) -> EngineVerdict:
    """release: None for that in which it was found; checkout: what takes its place; kind: of the
    device: on a GPU holds are latches

    Raises BadInput if the engine cannot be started, or if it was found in a checkout and no release
    is named.
    """
    named = release or witness.release
    if release is None and os.sep in named:
        raise BadInput(
            f"it was found in the checkout {named}: racegate vllm replay FILE --release X "
            f"--path {named}, with the release nearest to it"
        )
    environment = environment_of(named, checkout=checkout)
    cell = Cell(release=str(checkout or named), runner=witness.runner, mode=witness.mode)
    if kind is DeviceKind.CUDA:
        engines = FreshEngines(environment, runner=cell.runner, mode=cell.mode, log=log)
        return judge_under(engines, witness.scenario, cell, witness.holds, kind=kind)
    with open_engine(environment, runner=cell.runner, mode=cell.mode, log=log) as engine:
        pulses = sensitivity_of(engine)
        return judge_under(engine, witness.scenario, cell, witness.holds, sensitivity=pulses)
