"""Hollow fidelity: no forward pass. Hidden states carry each token and its position, and logits
say what the scripted model says of them; everything around the model is the release's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import Tensor, alias_of, bytes_of

Says = Callable[[int, int], int]  # token, position -> token


def device_op(
    session: Session,
    kind: str,
    reads: list[Tensor],
    writes: list[Tensor],
    work: Callable[[list[Tensor], list[Tensor]], None],
) -> None:
    """An operation of ours on the current stream. work: gets CPU aliases of reads and writes, when
    the device comes to it.
    """
    with session.own():
        given = [alias_of(session, tensor) for tensor in reads]
        made = [alias_of(session, tensor) for tensor in writes]
        read = tuple(r for tensor in reads for r in bytes_of(session, tensor))
        written = tuple(r for tensor in writes for r in bytes_of(session, tensor))

    def run() -> None:
        with session.own(), torch.no_grad():
            work(given, made)

    session.issue(kind, torch._C._cuda_getCurrentRawStream(0), read, written, run)


class Hollow:
    """Takes the place of models. says: the target's and the drafter's rule"""

    def __init__(self, session: Session, *, hidden_size: int, vocab: int) -> None:
        self._session = session
        self._hidden_size = hidden_size
        self._vocab = vocab

    def replace(self, model: Any, says: Says) -> None:
        """model: a module of vLLM, whose weights and states stay unused."""
        model.forward = self._forward
        model.compute_logits = lambda hidden, *args, **kwargs: self._logits(hidden, says)

    def _forward(
        self, input_ids: Any = None, positions: Any = None, *args: Any, **kwargs: Any
    ) -> Tensor:
        count = positions.shape[-1]
        hidden = torch.empty((count, self._hidden_size), device="cuda")

        def work(given: list[Tensor], made: list[Tensor]) -> None:
            made[0].zero_()
            made[0][:, 0] = given[1].reshape(-1)[:count]
            made[0][:, 1] = given[0].reshape(-1)[:count]

        device_op(self._session, "forward (hollow)", [input_ids, positions], [hidden], work)
        return hidden

    def _logits(self, hidden: Tensor, says: Says) -> Tensor:
        logits = torch.empty((hidden.shape[0], self._vocab), device="cuda")

        def work(given: list[Tensor], made: list[Tensor]) -> None:
            made[0].zero_()
            for row, (position, token) in enumerate(given[0][:, :2].tolist()):
                made[0][row, says(int(token), int(position))] = 10.0

        device_op(self._session, "logits (scripted)", [hidden], [logits], work)
        return logits
