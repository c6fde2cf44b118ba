"""What is observed of an engine at its boundaries, in the order of the device's own work.

An observation of device memory is an operation on the current stream that touches nothing: it sees
what a kernel in its place would see, and adds no order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from racegate.targets.common.inside.session import EngineSession, Tensor
from racegate.targets.common.wire import KEPT

Values = dict[str, object]
Seen = tuple[int, str, Values]  # step, name, values
Look = Callable[[Tensor], Tensor]  # what is kept of memory that was observed


class Watch:
    """Observations of one run.

    seen: what must be the same under every schedule: step, name and values, in order
    inner: all of it, with values that legal schedules change: inputs of rows whose output is thrown
        away, say. Two versions of an engine are compared by it, of runs in which nothing is held
    """

    def __init__(self, session: EngineSession) -> None:
        self._session = session
        self._unread: list[tuple[Values, dict[str, Tensor]]] = []
        self.begin()

    def begin(self) -> None:
        """A run begins; what was observed before is another's."""
        self.step = 0
        self.seen: list[Seen] = []
        self.inner: list[Seen] = []
        self.counters: Counter[str] = Counter()

    def begin_step(self) -> None:
        """The engine comes to its next step."""
        self.step += 1

    def on_device(self, name: str, tensors: dict[str, Tensor], **known: object) -> None:
        """Values of device tensors, as of this place on the current stream."""
        self._add(self._on_device(name, tensors, known, {}))

    def inner_on_device(self, name: str, tensors: dict[str, Tensor], **known: object) -> None:
        """As `on_device`, of values that legal schedules may change."""
        self.inner.append(self._on_device(name, tensors, known, {}))

    def inner_look(
        self, name: str, tensors: dict[str, Tensor], looks: Mapping[str, Look], **known: object
    ) -> None:
        """As `inner_on_device`. looks: by the name of a tensor, what is kept in the place of all
        its values
        """
        self.inner.append(self._on_device(name, tensors, known, looks))

    def inner_on_host(self, name: str, **values: object) -> None:
        """As `on_host`, of values that legal schedules may change."""
        self.inner.append((self.step, name, dict(values)))

    def note_operations(self) -> None:
        """When a run is over: on which streams its operations were, which bytes its kernels and
        copies touched, and what kernels were given: one that loads elsewhere is another, also where
        it finds the same values.
        """
        listener = self._session.listener
        self.inner_on_host(f"{KEPT} on streams", **listener.streams())
        self.inner_on_host(f"{KEPT} of operations", **listener.footprints(), **listener.settings())

    def own(self) -> AbstractContextManager[None]:
        """What is done inside is no doing of the engine."""
        return self._session.own()

    def memory_of(self, tensor: Tensor) -> Tensor:
        """What a look is done with."""
        return self._session.memory_of(tensor)

    def _on_device(
        self, name: str, tensors: dict[str, Tensor], known: Values, looks: Mapping[str, Look]
    ) -> Seen:
        session = self._session
        values = dict(known)
        with session.own():
            given = {key: session.memory_of(tensor) for key, tensor in tensors.items()}

        def work(*_: object) -> None:
            copies = {key: looks.get(key, _all_of)(memory) for key, memory in given.items()}
            self._unread.append((values, copies))

        session.launch(f"observe {name}", [], [], work)
        return (self.step, name, values)

    def _add(self, observed: Seen) -> None:
        self.seen.append(observed)
        self.inner.append(observed)

    def on_host_now(self, tensors: dict[str, Tensor]) -> Values:
        """Values of host tensors, as the host has them now; the program reads nothing by it."""
        with self._session.own():
            return {key: tensor.tolist() for key, tensor in tensors.items()}

    def read(self) -> None:
        """Fetches what was observed on the device: when the run is over, or it would be a wait."""
        for values, copies in self._unread:
            values.update({key: copy.tolist() for key, copy in copies.items()})
        self._unread.clear()

    def on_host(self, name: str, **values: object) -> None:
        """Values that the host knows without touching memory that the device uses."""
        self._add((self.step, name, dict(values)))


def _all_of(memory: Tensor) -> Tensor:
    return memory.clone()
