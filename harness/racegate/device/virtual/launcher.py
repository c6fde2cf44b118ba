"""Launcher: how the virtual device runs a launch: plainly, audited, or by memo."""

from __future__ import annotations

from functools import partial

from racegate.device.launches import Launch, check_owners, set_owners
from racegate.device.recorder import Recorder
from racegate.device.virtual.audit import run_audited
from racegate.device.virtual.memo import OpMemo
from racegate_kernels.backend import Backend


class Launcher:
    """Runs launches when their turn has come. is_audited, memo: see VirtualDevice."""

    __slots__ = ("_is_audited", "_recorder", "backend", "memo")

    def __init__(
        self, recorder: Recorder, backend: Backend, *, is_audited: bool, memo: OpMemo | None
    ) -> None:
        self._recorder = recorder
        self.backend = backend
        self._is_audited = is_audited
        self.memo = memo

    def run(self, launch: Launch, operation: str, step: int) -> None:
        """Reads, computes and writes. operation: the name in the trace."""
        views = []
        for use in launch.uses:
            array = use.buffer.storage.array
            views.append(array if use.rows is None else array[: use.rows])
            if use.expect:
                check_owners(use, self._recorder, operation, step)
        kernel, constants, scalars = launch.kernel, launch.constants, launch.scalars
        if self._is_audited:
            run_audited(launch, self.backend, operation, views)
        elif self.memo is None:
            kernel(self.backend, *views, *constants, **scalars)
        else:
            compute = partial(kernel, self.backend, *views, *constants, **scalars)
            self.memo.run(launch, views, compute)
        set_owners(launch.uses)
