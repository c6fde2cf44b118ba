"""Memo: results of operations by the content they work on, shared by the runs of one scenario.

Every storage carries a number that stands for its content: equal numbers mean equal content. What
was made in a way that was seen before is known by that; else by a digest of its bytes, so that runs
that come to the same values by other ways have the same numbers. An operation whose inputs have
been seen before is not computed again. Kernels are pure functions of what they declare; the audit
keeps that true.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from types import EllipsisType

import numpy as np

from racegate.device.launches import Launch
from racegate.device.uses import Use
from racegate.history.trace import rows_of

# Cleared when full: a bound on memory, not a policy.
RESULT_BYTES_MAX = 1 << 28
# What is larger is known only by the way in which it was made.
DIGEST_BYTES_MAX = 1 << 20

Key = tuple[Hashable, ...]
Place = list[int] | EllipsisType  # rows, or all
Result = tuple[Place, np.ndarray, int]  # what was written there, and the content it made


class OpMemo:
    """Numbers for contents, and results of operations by those of their inputs."""

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}
        self._contents: dict[Key, int] = {}
        self._results: dict[int, list[Result]] = {}
        self._bytes = 0

    def number(self, *key: Hashable) -> int:
        """A number that stands for this and nothing else."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._numbers) + 1
        return found

    def content(self, array: np.ndarray, *way: Hashable) -> int:
        """The number of what an array holds, which was made in this way.

        array: [rows, ...]
        """
        found = self._contents.get(way)
        if found is None:
            found = self._contents[way] = self._number_of(array, way)
        return found

    def _number_of(self, array: np.ndarray, way: Key) -> int:
        if array.nbytes > DIGEST_BYTES_MAX:
            return self.number(way)
        digest = blake2b(array.tobytes(), digest_size=20).digest()
        return self.number(array.shape, array.dtype.str, digest)

    def run(self, launch: Launch, views: Sequence[np.ndarray], compute: Callable[[], None]) -> None:
        """Does what `compute` does to the views, by computing it or by remembering.

        views: [rows, ...] each, one per use
        """
        uses = launch.uses
        inputs = tuple([(use.buffer.storage.content, use.rows, use.mask) for use in uses])
        kernel = _identity(launch.kernel)
        made = self.number(kernel, launch.name, inputs, *launch.scalars.values())
        results = self._results.get(made)
        if results is None:
            compute()
            self._results[made] = self._collect(made, uses, views)
        written = 0
        for use, view in zip(uses, views, strict=True):
            if use.is_write:
                place, values, content = self._results[made][written]
                if results is not None:
                    view[place] = values
                use.buffer.storage.content = content
                written += 1

    def _collect(self, made: int, uses: Sequence[Use], views: Sequence[np.ndarray]) -> list[Result]:
        if self._bytes > RESULT_BYTES_MAX:
            self._results.clear()
            self._bytes = 0
        results = []
        for index, (use, view) in enumerate(zip(uses, views, strict=True)):
            if use.is_write:
                mask = use.known_mask
                place: Place = ... if mask is None else rows_of(mask)
                values = view[place].copy()
                self._bytes += values.nbytes
                content = self.content(use.buffer.storage.array, "out", made, index)
                results.append((place, values, content))
        return results


def _identity(kernel: Callable[..., None]) -> Hashable:
    """What tells a kernel from others: its code alone, or itself if it also depends on values that
    it closes over.
    """
    return kernel if kernel.__closure__ or kernel.__defaults__ else kernel.__code__
