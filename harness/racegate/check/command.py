"""The command that makes a run again: every finding names it."""

from __future__ import annotations

from dataclasses import dataclass

from racegate.faults.fault import Fault
from racegate.history.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCommand:
    """base: runs the scenario without fault and holds; options: of the device it is run on"""

    base: str
    options: tuple[str, ...] = ()

    def text(self, schedule: Schedule, fault: Fault | None) -> str:
        """The command line for a schedule and a fault."""
        parts = [self.base, *self.options]
        if fault is not None:
            parts.append(f"--fault {fault.name}")
        parts += [f'--hold "{text}"' for text in schedule.texts()]
        return " ".join(parts)
