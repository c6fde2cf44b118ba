"""Witnesses of SGLang's releases."""

from __future__ import annotations

from racegate.history.witness import WitnessReader
from racegate.targets.common.witnesses.witness import ReleaseWitness, check_release
from racegate.targets.sglang.cell import SchedulerCell


class SchedulerWitness(ReleaseWitness, frozen=True, kw_only=True):
    """Of SGLang: what is run, and what was wrong when it was."""

    subject: SchedulerCell


SGLANG_WITNESSES = WitnessReader(
    of="sglang", title="an SGLang release", kind=SchedulerWitness, check=check_release
)
