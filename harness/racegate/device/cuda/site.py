"""CudaSite: where runs on CUDA are made, one after the other."""

from __future__ import annotations

from collections.abc import Callable

from racegate.device.chooser import HoldChooser
from racegate.device.cuda.device import CudaDevice
from racegate.device.cuda.driver import CudaDriver
from racegate.device.cuda.pacing import PATIENCE_S, Pace, Pacing
from racegate.device.recorder import Recorder
from racegate.history.schedule import Schedule
from racegate_kernels.backend import Backend


class CudaSite:
    """A GPU and how it is used. Only one of its devices is in use at a time."""

    def __init__(
        self,
        cuda: CudaDriver,
        *,
        pacing: Pacing = Pacing.EAGER,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._cuda = cuda
        self._pace = Pace(pacing, patience_s)
        self._last: CudaDevice | None = None

    @property
    def pacing(self) -> Pacing:
        """When operations run that no hold names."""
        return self._pace.pacing

    @property
    def has_expired(self) -> bool:
        """Whether the watchdog had to end the last run."""
        return self._last is not None and self._last.has_expired

    def device(
        self,
        lanes: tuple[str, ...],
        *,
        schedule: Schedule,
        dropped: frozenset[str] = frozenset(),
        exchange: Callable[[Backend], Backend] | None = None,
        recorder: Recorder | None = None,
    ) -> CudaDevice:
        """A device for one run. exchange: kernels for other kernels (seeded faults); recorder:
        another than the device's own.
        """
        backend = self._cuda.backend
        self._last = CudaDevice(
            lanes,
            self._cuda,
            pace=self._pace,
            chooser=HoldChooser(schedule),
            dropped=dropped,
            recorder=recorder,
            backend=backend if exchange is None else exchange(backend),
        )
        return self._last
