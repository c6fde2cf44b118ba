"""Witnesses of SGLang's releases."""

from __future__ import annotations

from pathlib import Path

from racegate.targets.common.witnesses.witness import ReleaseWitness, read_release_witness
from racegate.targets.sglang.cell import SchedulerCell


class SchedulerWitness(ReleaseWitness, frozen=True, kw_only=True):
    """Of SGLang: what is run, and what was wrong when it was."""

    subject: SchedulerCell


def read_scheduler_witness(path: Path) -> SchedulerWitness:
    """Raises WitnessError with the file and the reason."""
    return read_release_witness(path, SchedulerWitness, "sglang")
