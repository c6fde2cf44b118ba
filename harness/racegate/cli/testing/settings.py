"""The options of the plugin: command line, environment and ini file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

OPTIONS = {
    "device": ("virtual|cuda", "where scenarios run; without a GPU cuda is skipped"),
    "replay": ("FILE", "run this witness in the place of what marked tests name"),
    "seed": ("N", "seed of what is drawn while schedules are searched"),
    "report-dir": ("DIR", "write a witness and a page for each test that fails"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSettings:
    """The options, by command line, environment (`RACEGATE_SEED`) or ini file, in this order."""

    device: str
    replay: Path | None
    seed: int
    report_dir: Path | None


def key_of(name: str) -> str:
    """What an option is called in the ini file and, in capitals, in the environment."""
    return f"racegate_{name.replace('-', '_')}"


def settings_of(config: pytest.Config) -> TrialSettings:
    """Raises pytest.UsageError for what cannot be used."""
    device = _said(config, "device") or "virtual"
    if device not in ("virtual", "cuda"):
        raise pytest.UsageError(f"--racegate-device {device}: there is virtual and cuda")
    seed = _said(config, "seed") or "0"
    if not seed.isdecimal():
        raise pytest.UsageError(f"--racegate-seed {seed}: a number from 0 on")
    replay = _said(config, "replay")
    if replay and not Path(replay).is_file():
        raise pytest.UsageError(f"--racegate-replay {replay}: there is no such file")
    reports = _said(config, "report-dir")
    return TrialSettings(
        device=device,
        replay=Path(replay).resolve() if replay else None,
        seed=int(seed),
        report_dir=config.invocation_params.dir / reports if reports else None,
    )


def _said(config: pytest.Config, name: str) -> str:
    key = key_of(name)
    by_option: str | None = config.getoption(key)
    if by_option is not None:
        return by_option
    return os.environ.get(key.upper()) or str(config.getini(key))
