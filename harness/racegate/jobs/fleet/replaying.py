"""The command that shows a finding of a target again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from racegate.jobs.fleet.gates import release_words
from racegate.jobs.fleet.targets import (
    AdapterTarget,
    DeviceTarget,
    RevisionTarget,
    Target,
    TargetDevice,
)


def replay_of(target: Target, name: str, holds: Sequence[str]) -> str:
    """name: of the scenario, whose file is beside its finding; of a revision the command is to be
    run with its sources
    """
    held = [word for hold in holds for word in ("--hold", hold)]
    file = f"{name}.toml"
    match target:
        case RevisionTarget():
            words = ["run", file, *held]
        case DeviceTarget(device=device):
            on = ["--device", "cuda"] if device is TargetDevice.GPU else []
            words = ["run", file, *on, *held]
        case AdapterTarget():
            words = ["adapter", "run", file, *held, "--", *target.adapter]
        case _:
            group, *release = release_words(target)
            words = [group, "run", file, *release, *held]
    return shlex.join(["racegate", *words])
