"""Hollow fidelity: no forward pass. Hidden states carry each token and its position, and logits
say what the scripted model says of them; everything around the model is the release's own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from racegate.targets.common.inside.session import EngineSession, Tensor
from racegate.targets.common.inside.watch import Look, Watch

# Of the scripted token, and of all others: not zero, so that a factor changes them.
_LIKELY, _OTHERS = 10.0, 0.5
_NEAR = 0.05  # the second of two tokens is less likely by this: both are drawn
Says = Callable[[Tensor, Tensor], Tensor]  # tokens, positions -> tokens, or two of each


class Hollow:
    """Takes the place of models. watch: is shown what each model is given

    spoken: what is kept of the hidden states that a drafter is given; None: nothing, as they are
        those of a model that computes, and say nothing of tokens and positions
    """

    def __init__(
        self,
        session: EngineSession,
        watch: Watch,
        *,
        hidden_size: int,
        vocab: int,
        spoken: Look | None,
    ) -> None:
        self._session = session
        self._spoken = spoken
        self._watch = watch
        self._hidden_size = hidden_size
        self._vocab = vocab
        self.forwards = 0  # that the host ran, not those inside of a graph that is replayed

    def replace(
        self,
        model: Any,
        says: Says,
        *,
        name: str,
        gives: int = 1,
        touch: Callable[[Tensor, Tensor, Tensor], None] | None = None,
    ) -> None:
        """model: a module of vLLM, whose weights and states stay unused; name: of it, for what is
        observed; says: its rule; gives: how often it returns its hidden states: drafters of EAGLE
        give them to the next pass, too; touch: called with tokens, positions and hidden states of
        each pass, for what it does to pages of the cache
        """
        forward = partial(self._forward, f"inputs of the {name}", touch)
        model.forward = forward if gives == 1 else _repeated(forward, gives)
        model.compute_logits = lambda hidden, *args, **kwargs: self._logits(hidden, says)

    def observe(
        self, name: str, input_ids: Tensor, positions: Tensor, hidden: Tensor | None = None
    ) -> None:
        """What a model is given, and its context. name: of the observation; hidden: states that a
        drafter is given, which say whose they are
        """
        tensors = {"tokens": input_ids, "positions": positions}
        looks: dict[str, Look] = {}
        if hidden is not None and self._spoken is not None:
            tensors["hidden"], looks["hidden"] = hidden, self._spoken
        self._watch.inner_look(name, tensors, looks)
        slots, known = context_of_forward()
        self._watch.inner_on_device(f"context of {name}", slots, **known)

    def _forward(
        self,
        name: str,
        touch: Callable[[Tensor, Tensor, Tensor], None] | None,
        input_ids: Any = None,
        positions: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Tensor:
        self.forwards += 1
        if not torch.cuda.is_current_stream_capturing():
            self.observe(name, input_ids, positions, kwargs.get("hidden_states"))
        count = positions.shape[-1]
        hidden = torch.empty((count, self._hidden_size), device="cuda")

        def work(given: list[Tensor], made: list[Tensor]) -> None:
            made[0].zero_()
            made[0][:, 0] = given[1].reshape(-1)[:count]
            made[0][:, 1] = given[0].reshape(-1)[:count]

        self._session.launch("forward (hollow)", [input_ids, positions], [hidden], work)
        if touch is not None:
            touch(input_ids, positions, hidden)
        return hidden

    def _logits(self, hidden: Tensor, says: Says) -> Tensor:
        logits = torch.empty((hidden.shape[0], self._vocab), device="cuda")

        def work(given: list[Tensor], made: list[Tensor]) -> None:
            position, token = given[0][:, 0].long(), given[0][:, 1].long()
            made[0].fill_(_OTHERS)
            said = says(token, position).reshape(len(token), -1)
            made[0].scatter_(1, said[:, 1:], _LIKELY - _NEAR)
            made[0].scatter_(1, said[:, :1], _LIKELY)

        self._session.launch("logits (scripted)", [hidden], [logits], work)
        return logits


def spoken(hidden: Tensor) -> Tensor:
    """The position and the token that hidden states were made of. Returns int64 [tokens, 2]"""
    return hidden[:, :2].long()


def context_of_forward() -> tuple[dict[str, Tensor], dict[str, object]]:
    """What vLLM's forward context has for layers: the slots of each, as far as a release gives them
    there; which layers have metadata, and the batch that a captured graph is chosen by.
    """
    from vllm.forward_context import get_forward_context, is_forward_context_available

    if not is_forward_context_available():
        return {}, {}
    context = get_forward_context()
    slots = getattr(context, "slot_mapping", None)
    metadata = getattr(context, "attn_metadata", None)
    described = getattr(context, "batch_descriptor", None)
    known: dict[str, object] = {
        "layers": sorted(metadata) if isinstance(metadata, dict) else None,
        "batch": None if described is None else str(described),
    }
    return dict(slots) if isinstance(slots, dict) else {}, known


def _repeated(forward: Callable[..., Tensor], count: int) -> Callable[..., tuple[Tensor, ...]]:
    def call(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        return (forward(*args, **kwargs),) * count

    return call
