"""What a program or a test may call: `observe`, `recording`, `declare_copies`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from racegate.history.finding import Race
from racegate.interpose.current import ProgramRun, get_run
from racegate.interpose.errors import BadInput

if TYPE_CHECKING:
    from racegate.interpose.kernels.declared.copies import Moves


class Recording:
    """The conflicts of a part of a program."""

    def __init__(self, run: ProgramRun) -> None:
        self._run = run
        self._before = {finding.signature: finding.count for finding in run.findings()}
        self._found: tuple[Race, ...] | None = None

    @property
    def findings(self) -> tuple[Race, ...]:
        """Conflicts whose second access came inside the `with`: so far, or when it has ended."""
        return self._found if self._found is not None else self._now()

    def end(self) -> None:
        """What comes after is no part of it."""
        self._found = self._now()

    def _now(self) -> tuple[Race, ...]:
        before = self._before
        found = self._run.findings()
        return tuple(one for one in found if one.count > before.get(one.signature, 0))


@contextmanager
def recording() -> Iterator[Recording]:
    """Conflicts of a part of a program. Raises BadInput if the process has no virtual device."""
    run = get_run()
    if run is None:
        raise BadInput(
            "this process has no virtual device: start it with "
            "`racegate torch run SCRIPT` or `racegate torch run -m pytest`"
        )
    part = Recording(run)
    try:
        yield part
    finally:
        part.end()


def observe(name: str, value: object) -> None:
    """Marks a value that must not depend on the schedule: a tensor, an array, or what prints well.

    A CUDA tensor is read as its current stream would see it; the program gains no edge by it.
    """
    run = get_run()
    if run is not None:
        run.observe(name, value)


def agree(name: str, value: object) -> None:
    """Marks a value as one that all ranks of the program have to have, such as the plan of a step
    or the tokens that were sampled: the first that differs is named. It is observed too, and of a
    program without ranks that is all.
    """
    run = get_run()
    if run is not None:
        run.agree(name, value)


def declare_copies(
    schema: str,
    moves: Callable[..., Moves],
    *,
    reads: tuple[str, ...] = (),
    any_order: str = "",
) -> None:
    """Says what a compiled operator copies that only copies, on the current stream. Without a
    device this does nothing: the operator stays what it is.

    Args:
        schema: of the operator, as `torch.library` has it: `"my::copy(Tensor a, Tensor b) -> ()"`.
        moves: is called with the operator's arguments, and gives (address of the target, address of
            the source, bytes) of each copy. Tensors of the device come as tensors of the host over
            the same bytes.
        reads: names of arguments whose values say what is copied. If one is on the device, a kernel
            reads it there when it runs.
        any_order: name of an argument that says, if it is true, that the sources may be read at any
            time from the call on, and not in the order of the stream.
    """
    run = get_run()
    if run is not None:
        run.declare(schema, moves, reads, any_order)
