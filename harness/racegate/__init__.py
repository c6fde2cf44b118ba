"""The harness: scenarios, devices, the asynchronous engine, oracles, search and reports."""

from __future__ import annotations

__all__ = ["observe"]

# The one place where it stands: the distribution takes it from here.
__version__ = "0.1.0"


def observe(name: str, value: object) -> None:
    """Marks what must not depend on the schedule: a tensor, an array, or what prints well. A
    program under `racegate torch run` is judged by it; elsewhere nothing happens.
    """
    from racegate.interpose.surface import observe as observe_in_run

    observe_in_run(name, value)
