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
from racegate.targets.vllm.inside.scripted.images import PLACE, TOKEN

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
        tells: int = 0,
        hears: int = 0,
        touch: Callable[[Tensor, Tensor, Tensor], None] | None = None,
    ) -> None:
        """model: a module of vLLM, whose weights and states stay unused; name: of it, for what is
        observed; says: its rule; gives: how often it returns its hidden states: drafters of EAGLE
        give them to the next pass, too; tells: of how many layers it returns the hidden states
        beside the last ones; hears: of how many it is given those of another; touch: called with
        tokens, positions and hidden states of each pass, for what it does to pages of the cache
        """
        forward = partial(self._forward, f"inputs of the {name}", touch)
        model.forward = _repeated(forward, gives, tells)
        if hears:
            model.combine_hidden_states = partial(self._combined, hears)
        model.compute_logits = lambda hidden, *args, **kwargs: self._logits(hidden, says)

    def observe(
        self,
        name: str,
        input_ids: Tensor,
        positions: Tensor,
        hidden: Tensor | None = None,
        embeds: Tensor | None = None,
    ) -> None:
        """What a model is given, and its context. name: of the observation; hidden: states that a
        drafter is given, which say whose they are; embeds: of tokens, and of images
        """
        tensors = {"tokens": input_ids, "positions": positions}
        looks: dict[str, Look] = {}
        if embeds is not None:
            tensors["images"] = embeds[:, PLACE]
            looks = {"tokens": _whole, "images": _whole}
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
        embeds = kwargs.get("inputs_embeds")
        if embeds is not None:  # as a hollow encoder makes them
            input_ids = embeds[:, TOKEN]
        if not torch.cuda.is_current_stream_capturing():
            self.observe(name, input_ids, positions, kwargs.get("hidden_states"), embeds)
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

    def _combined(self, count: int, hidden: Tensor) -> Tensor:
        """Hidden states of several layers made one: what they all say, or what none says."""
        made = torch.empty((hidden.shape[0], self._hidden_size), device="cuda")

        def work(given: list[Tensor], made: list[Tensor]) -> None:
            made[0].copy_(given[0].view(-1, count, self._hidden_size).mean(1))

        self._session.launch("combined (hollow)", [hidden], [made], work)
        return made

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


def _whole(numbers: Tensor) -> Tensor:
    return numbers.long()


def spoken(hidden: Tensor) -> Tensor:
    """The position and the token that hidden states were made of. Returns int64 [tokens, 2]"""
    return hidden[:, :2].long()


def context_of_forward() -> tuple[dict[str, Tensor], dict[str, object]]:
    """What vLLM's forward context has for layers: the slots of each, as far as a release gives them
    there, how long rows are by the metadata of each, which may have changed since it was made, and
    which tokens pad the pass; which layers have metadata, and the batch that a captured graph is
    chosen by.
    """
    from vllm.forward_context import get_forward_context, is_forward_context_available

    if not is_forward_context_available():
        return {}, {}
    context = get_forward_context()
    slots = getattr(context, "slot_mapping", None)
    padding = getattr(context, "is_padding", None)
    metadata = getattr(context, "attn_metadata", None)
    described = getattr(context, "batch_descriptor", None)
    by_layer = metadata if isinstance(metadata, dict) else {}
    known: dict[str, object] = {
        "layers": sorted(by_layer) if isinstance(metadata, dict) else None,
        "batch": None if described is None else str(described),
    }
    found = dict(slots) if isinstance(slots, dict) else {}
    lengths = {layer: vars(each).get("seq_lens") for layer, each in by_layer.items()}
    found |= {f"lengths of {layer}": each for layer, each in lengths.items() if each is not None}
    return found if padding is None else {**found, "is_padding": padding}, known


def _repeated(forward: Callable[..., Tensor], count: int, layers: int) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        hidden = forward(*args, **kwargs)
        if layers:
            return hidden, [hidden.clone() for _ in range(layers)]
        return hidden if count == 1 else (hidden,) * count

    return call
