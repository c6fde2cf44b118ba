"""The options of the plugin: command line, environment and ini file."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
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


SETTINGS = pytest.StashKey[TrialSettings]()


def report_file(item: pytest.Item, folder: Path, ending: str) -> Path:
    """A file of a test that failed, in a folder that is made if need be. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.\-]+", "-", item.nodeid)[-150:].strip("-")
    return folder / f"{name}{ending}"


def attached(item: pytest.Item, text: str, files: Sequence[Path]) -> list[str]:
    """Puts what is told of a finding, and the files of it, into the properties of a JUnit file.
    Gives the lines by which Jenkins and GitLab find attachments.
    """
    item.user_properties.append(("racegate.finding", text))
    item.user_properties += [("racegate.attachment", str(file)) for file in files]
    return [f"[[ATTACHMENT|{file}]]" for file in files]


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
