"""Full fidelity: the target computes what it says, with its recurrent states and attention caches.
Its drafter is scripted: it says what plain decoding gave, and something else where a draft is to be
wrong.
"""

from __future__ import annotations

from typing import Any

import torch

from racegate.scenario.spec import Scenario
from racegate.targets.common.inside.session import Tensor
from racegate.targets.vllm.inside.scripted.model import PLACES_MAX, WIDTH, Script
from racegate.targets.vllm.wire import REQUESTS_MAX

SEED = 1


def give_weights(model: Any) -> None:
    """Weights that matter: those of a model without a checkpoint are so small that no state shows.

    model: a module of vLLM
    """
    draw = torch.Generator().manual_seed(SEED)
    for weight in model.parameters():
        if weight.dim() < 2:  # norms and gates
            drawn = torch.rand(weight.shape, generator=draw) + 0.5
        else:
            drawn = torch.randn(weight.shape, generator=draw) / weight[0].numel() ** 0.5
        weight.data.copy_(drawn.to(weight.dtype))


class Computed:
    """A model that says only tokens of the request that it is asked about: the likeliest of these.

    Hidden states carry the token that they are of, in a column that the model's last layer does
    without.
    """

    def __init__(self, model: Any) -> None:
        self._forward = model.forward
        self._logits = model.compute_logits
        self._lies = False
        model.forward = self.forward
        model.compute_logits = self.logits

    def begin(self, *, lies: bool) -> None:
        """A run begins. lies: it says other tokens than the likeliest"""
        self._lies = lies

    def forward(self, input_ids: Any, *args: Any, **kwargs: Any) -> Tensor:
        """What vLLM calls: hidden states [tokens, size]."""
        hidden = self._forward(input_ids, *args, **kwargs)
        hidden[:, 0] = input_ids[: hidden.shape[0]]
        return hidden

    def logits(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """hidden: [rows, size]; returns [rows, vocabulary]"""
        request = hidden[:, :1].long() // WIDTH
        hidden = hidden.clone()
        hidden[:, 0] = 0
        logits = self._logits(hidden, *args, **kwargs)
        if self._lies:
            logits = logits.roll(1, -1)
        is_own = torch.arange(logits.shape[-1], device=hidden.device) // WIDTH == request
        return logits.masked_fill(~is_own, float("-inf"))


class Known(Script):
    """A script of which plain decoding is known. said: its tokens, by request"""

    def __init__(
        self, scenario: Scenario, said: dict[str, tuple[int, ...]], *, draft_len: int, device: str
    ) -> None:
        self._said = said  # prompts that begin with another request's tokens ask for it
        super().__init__(scenario, draft_len=draft_len, device=device)
        table = torch.zeros((REQUESTS_MAX, PLACES_MAX), dtype=torch.int64)
        for index, request in enumerate(scenario.requests):
            tokens = said.get(request.name, ())
            first = len(request.prompt)
            table[index, first : first + len(tokens)] = torch.tensor(tokens, dtype=torch.int64)
        self._table = table.to(device)

    def plain(self, index: int) -> tuple[int, ...]:
        name = self.scenario.requests[index].name
        return self._said.get(name, ())[: len(super().plain(index))]

    def token_at(self, index: int, place: int) -> int | None:
        prompt = self._prompts[index]
        if place < len(prompt):
            return prompt[place]
        said = self._said.get(self.scenario.requests[index].name, ())
        return said[place - len(prompt)] if place < len(prompt) + len(said) else None

    def draft_at(self, owner: int, place: int) -> int | None:
        said = self.token_at(owner, place) if place >= len(self._prompts[owner]) else None
        is_wrong = place in self._wrong_places[self._voices[owner]]
        return None if said is None else self.own(owner).start + (said + is_wrong) % WIDTH

    def drawn_at(self, owner: int, place: int) -> tuple[int | None, ...]:
        return (self.draft_at(owner, place),)

    def draft(self, token: Tensor, position: Tensor) -> Tensor:
        index, place = token // WIDTH, position + 2
        rows, columns = index.clamp(0, REQUESTS_MAX - 1), place.clamp(0, PLACES_MAX - 1)
        said = self._table[rows, columns] + self._wrong[rows, columns]
        return rows * WIDTH + said % WIDTH
