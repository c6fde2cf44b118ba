"""What a program or a test may call: `observe` and `recording`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from racegate.interpose.current import get_run
from racegate.interpose.errors import BadInput
from racegate.interpose.order.findings import Finding


@dataclass(slots=True)
class Recording:
    """findings: the conflicts whose second access came inside the `with`; complete at its end."""

    findings: tuple[Finding, ...] = ()


@contextmanager
def recording() -> Iterator[Recording]:
    """Conflicts of a part of a program. Raises BadInput if the process has no virtual device."""
    run = get_run()
    if run is None:
        raise BadInput(
            "this process has no virtual device: start it with "
            "`python -m racegate.interpose SCRIPT` or `python -m racegate.interpose -m pytest`"
        )
    before = {finding.signature: finding.count for finding in run.findings()}
    part = Recording()
    yield part
    part.findings = tuple(
        finding for finding in run.findings() if finding.count > before.get(finding.signature, 0)
    )


def observe(name: str, value: object) -> None:
    """Marks a value that must not depend on the schedule: a tensor, an array, or what prints well.

    A CUDA tensor is read as its current stream would see it; the program gains no edge by it.
    """
    run = get_run()
    if run is not None:
        run.observe(name, value)
