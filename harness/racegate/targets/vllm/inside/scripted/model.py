"""The scripted model: which token follows which, and which drafts are wrong, by request and place.

Tokens say whose they are: request r of a scenario has the tokens r * WIDTH to (r + 1) * WIDTH. So
the model is a function of a token and its position alone, as a real one is, and needs to be told
nothing of rows, steps or schedules. Drafts are wrong exactly at the places where the scenario's
accepted counts end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, cycle, takewhile
from operator import eq
from typing import Any

import torch

from racegate.scenario.spec import Image, Request, Scenario
from racegate.targets.vllm.inside.scripted.coordinates import Coordinates, coordinates, shift_of
from racegate.targets.vllm.inside.scripted.windows import WINDOW_TOKENS
from racegate.targets.vllm.wire import (
    MODULUS_MAX,
    REQUESTS_MAX,
    TOKENS_MAX,
    DraftMode,
    LayerMode,
    ModelRunner,
    PositionMode,
    VocabularyMode,
)

WIDTH = 64
VOCAB = 1937  # no multiple of a kernel's block, nor of the tokens of a mask's word: masks matter
_KINDS = {  # of layers; others have attention alone
    LayerMode.HYBRID: ("linear_attention", "full_attention"),
    LayerMode.GROUPS: ("linear_attention",) * 3 + ("full_attention",),
}
_ATTENTION = ("full_attention", "full_attention")
_WIDE = 8192 + VOCAB  # tokens: blocks of kernels have 8192
PLACES_MAX = TOKENS_MAX + 8  # with drafts behind the last token; nothing is wrong in the last
Tensor = Any  # torch is untyped here


_MROPE = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "mtp_num_hidden_layers": 1,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
        "mrope_section": [4, 2, 2],
        "mrope_interleaved": True,
    },
}


def vocab_of(vocabulary: VocabularyMode) -> int:
    """How many tokens the model knows."""
    return _WIDE if vocabulary is VocabularyMode.WIDE else VOCAB


def config(
    layers: LayerMode = LayerMode.HYBRID,
    positions: PositionMode = PositionMode.TEXT,
    vocabulary: VocabularyMode = VocabularyMode.USUAL,
) -> dict[str, Any]:
    """A tiny model with multi-token prediction: one or three gated-delta layers and one of
    attention, or two of attention, which may have windows. With M-RoPE it is that model's
    successor, with Mamba2 another.
    """
    if layers is LayerMode.MAMBA2:
        return _of_mamba2(_usual_config(_ATTENTION)) | {"vocab_size": vocab_of(vocabulary)}
    kinds = _KINDS.get(layers, _ATTENTION)
    windows = {"rswa_window": WINDOW_TOKENS} if layers is LayerMode.WINDOWS else {}
    tokens = {"vocab_size": vocab_of(vocabulary)}
    dimensions = _MROPE if positions is PositionMode.MROPE else {}
    return _usual_config(kinds) | windows | dimensions | tokens


def _usual_config(kinds: Sequence[str]) -> dict[str, Any]:
    """kinds: of the layers"""
    return {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "vocab_size": VOCAB,
        "hidden_size": 128,
        "intermediate_size": 128,
        "num_hidden_layers": len(kinds),
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
        "attention_bias": False,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
        "num_experts_per_tok": 1,
        "num_experts": 0,
        "norm_topk_prob": True,
        "mlp_only_layers": [],
        "layer_types": list(kinds),
        "num_nextn_predict_layers": 1,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "torch_dtype": "float32",
    }


def _of_mamba2(usual: dict[str, Any]) -> dict[str, Any]:
    """A Nemotron of that size, whose states are as large as those of the gated-delta layer."""
    shared = (
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "max_position_embeddings", "tie_word_embeddings",
        "num_nextn_predict_layers", "bos_token_id", "eos_token_id", "pad_token_id", "torch_dtype",
    )  # fmt: skip
    return {name: usual[name] for name in shared} | {
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        "hybrid_override_pattern": "M*",
        "mtp_hybrid_override_pattern": "*",
        "mamba_num_heads": 2,
        "mamba_head_dim": 64,
        "ssm_state_size": 64,
        "n_groups": 1,
        "conv_kernel": 4,
        "chunk_size": 16,
    }


def drafter_config(vocabulary: VocabularyMode = VocabularyMode.USUAL) -> dict[str, Any]:
    """A drafter of the EAGLE kind for it: one layer of attention, with weights of its own."""
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "head_dim")
    known = config(vocabulary=vocabulary)
    return {name: known[name] for name in names} | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "num_key_value_heads": 1,
        "max_position_embeddings": 2048,
        "torch_dtype": "float32",
    }


class Script:
    """What the model says in one scenario. draft_len: drafts per round; lies: its target too;
    device: where tokens are asked for; positions: in TEXT images shift nothing; draft_mode: whether
    drafts of a request that is sampled are drawn: of the one that is right and one that is not;
    ahead: of the position that the drafter is given, how far its token is: it is given those of the
    model's tokens, or its own
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        draft_len: int,
        lies: bool = False,
        device: str = "cpu",
        draft_mode: DraftMode = DraftMode.GREEDY,
        positions: PositionMode = PositionMode.MROPE,
        ahead: int = 2,
    ) -> None:
        self.scenario = scenario
        self._voices = [_voice(scenario.requests, index) for index in range(len(scenario.requests))]
        self._has_dimensions = positions is PositionMode.MROPE
        self._ahead = ahead
        self.keeps_drafts = True
        self._lies = lies
        self._draft_mode = draft_mode
        draws = torch.zeros(REQUESTS_MAX, dtype=torch.bool)
        for index, request in enumerate(scenario.requests):
            draws[index] = self.draws(request.name)
        self._draws = draws.to(device)
        refused = (i for i, r in enumerate(scenario.requests) if r.grammar_modulus > MODULUS_MAX)
        self._lengths = dict.fromkeys(refused, 0)  # and of requests that were given up
        wrong = torch.zeros((REQUESTS_MAX, PLACES_MAX), dtype=torch.int64)
        self._wrong_places: list[frozenset[int]] = []
        for index, r in enumerate(scenario.requests):
            ends = _ends(len(r.prompt), r.accepts, draft_len, r.max_tokens)
            wrong[index, ends] = 1
            self._wrong_places.append(frozenset(ends))
        shifts = torch.zeros(REQUESTS_MAX, dtype=torch.int64)
        for index, request in enumerate(scenario.requests):
            shifts[index] = shift_of(self._grids(request))
        self._shifts = shifts.to(device)
        self._wrong = wrong.to(device)  # where drafts are wrong, as 1
        self._prompts = [self.prompt(index) for index in range(len(scenario.requests))]

    def run_on(self, runner: ModelRunner) -> None:
        """Which runner is given this: the first one loses drafts of who is passed over."""
        self.keeps_drafts = runner is ModelRunner.V2

    def prompt(self, index: int) -> list[int]:
        """The prompt of a request, in its own tokens: but for the beginning that it has in common
        with an earlier one and what that one says, which is that one's. Its last token is its own,
        unless an earlier request is the same to the model.
        """
        requests = self.scenario.requests
        if self._voices[index] != index:
            return self.prompt(self._voices[index])
        own = requests[index].prompt
        tokens = [index * WIDTH + token % WIDTH for token in own]
        shared = [_shared(_whole(requests[earlier]), own[:-1]) for earlier in range(index)]
        if any(shared):
            count = max(shared)
            earlier = shared.index(count)
            tokens[:count] = [*self.prompt(earlier), *self.plain(earlier)][:count]
        return tokens

    def plain(self, index: int) -> tuple[int, ...]:
        """What plain decoding gives."""
        request = self.scenario.requests[index]
        first = len(request.prompt)
        count = self._lengths.get(index, request.tokens_most)
        return tuple(_token(self._voices[index], first + i) for i in range(count))

    def own(self, index: int) -> range:
        """The tokens of a request."""
        first = self._voices[index] * WIDTH
        return range(first, first + WIDTH)

    def cut(self, name: str, length: int) -> bool:
        """The request is given up after so many tokens; False if it was done by then."""
        index = next(i for i, r in enumerate(self.scenario.requests) if r.name == name)
        if length >= self.scenario.requests[index].tokens_most:
            return False
        self._lengths[index] = length
        return True

    def owner(self, token: int) -> int:
        """Whose a token is: that of a prefix in common is the earlier request's."""
        return token // WIDTH

    def token_at(self, index: int, place: int) -> int | None:
        """The token of a request at a place, of its prompt or behind it."""
        prompt = self._prompts[index]
        return prompt[place] if place < len(prompt) else int(_token(self._voices[index], place))

    def token_of(self, name: str, place: int) -> int | None:
        """Likewise, of a request by its name."""
        names = [request.name for request in self.scenario.requests]
        return self.token_at(names.index(name), place)

    def draft_at(self, owner: int, place: int) -> int | None:
        """What the drafter says for a place, behind a token of this owner."""
        voice = self._voices[owner]
        return int(_token(voice, place + (place in self._wrong_places[voice])))

    def draws(self, name: str) -> bool:
        """Whether the drafts of a request are drawn."""
        is_sampled = any(r.name == name and r.temperature for r in self.scenario.requests)
        return is_sampled and self._draft_mode is DraftMode.PROBABILISTIC

    def drawn_at(self, owner: int, place: int) -> tuple[int | None, ...]:
        """All that the drafter may say for a place, behind a token of this owner."""
        said, voice = self.draft_at(owner, place), self._voices[owner]
        if not self.draws(self.scenario.requests[voice].name):
            return (said,)
        return (said, int(_token(voice, place + (place not in self._wrong_places[voice]))))

    def looked_up(self, index: int, known: int) -> tuple[int | None, ...] | None:
        """Drafts of a request that has so many tokens; None: a model says them."""
        return None

    def target(self, token: Tensor, position: Tensor) -> Tensor:
        """The tokens behind these. token, position: int64 [n]; so is what is returned"""
        index = token // WIDTH
        return _token(index, self._place(index, position) + (2 if self._lies else 1))

    def _place(self, index: Tensor, position: Tensor) -> Tensor:
        """Where tokens of text stand that have these positions."""
        return position + self._shifts[index.clamp(0, REQUESTS_MAX - 1)]

    def coordinates_of(self, tokens: Sequence[int]) -> tuple[list[Coordinates], int]:
        """The positions of a prompt, with what has been said behind it, and what those of later
        text are less than its place. Its last token says whose it is.
        """
        images = self._grids(self.scenario.requests[self.owner(tokens[-1])])
        return coordinates(images, len(tokens)), shift_of(images)

    def coordinates_at(self, index: int, places: Sequence[int]) -> list[Coordinates]:
        """The positions of tokens of a request."""
        images = self._grids(self.scenario.requests[index])
        known = coordinates(images, max(places, default=0) + 1)
        return [known[place] for place in places]

    def _grids(self, request: Request) -> tuple[Image, ...]:
        """The images that positions are made of."""
        return request.images if self._has_dimensions else ()

    def draft(self, token: Tensor, position: Tensor) -> Tensor:
        """What the drafter says follows. Given the model's positions, its tokens stand one place
        behind them.

        token, position: int64 [n]; returns int64 [n, 2]: the likeliest, and another where one of
        them is drawn
        """
        index = token // WIDTH
        place = self._place(index, position) + self._ahead
        rows, columns = index.clamp(0, REQUESTS_MAX - 1), place.clamp(0, PLACES_MAX - 1)
        wrong = self._wrong[rows, columns]
        other = torch.where(self._draws[rows], 1 - wrong, wrong)
        return torch.stack([_token(index, place + one) for one in (wrong, other)], dim=-1)


def _voice(requests: Sequence[Request], index: int) -> int:
    """Whose tokens a request says: those of the first one that is the same to the model and its
    drafter.
    """
    alike = map(_asked_as, requests)
    return list(alike).index(_asked_as(requests[index]))


def _asked_as(request: Request) -> tuple[object, ...]:
    """What a model and its drafter see of a request."""
    seed = request.seed if request.temperature else 0
    return (request.prompt, request.images, request.accepts, request.temperature, seed)


def _whole(request: Request) -> tuple[int, ...]:
    """A prompt with what is said behind it, without saying whose it is."""
    first = len(request.prompt)
    return (*request.prompt, *(_token(0, first + at) for at in range(request.tokens_most)))


def _shared(some: tuple[int, ...], others: tuple[int, ...]) -> int:
    """How many tokens two prompts have in common at their beginning."""
    return sum(1 for _ in takewhile(bool, map(eq, some, others)))


def _token(index: Any, place: Any) -> Any:
    """The token of a request at a place, 0 of nobody: of integers, or of tensors of them."""
    return ((index >= 0) & (index < REQUESTS_MAX)) * (index * WIDTH + (7 * place + 3) % WIDTH)


def _ends(first: int, accepts: tuple[int, ...], draft_len: int, most: int) -> list[int]:
    """Places of the tokens that end a round in which not all drafts were accepted."""
    counts: list[int] = []
    for count in cycle(accepts):
        if sum(counts) > most:
            break
        counts.append(min(count, draft_len + 1))
    ends = zip(counts, accumulate(counts, initial=first), strict=False)
    return [place + count for count, place in ends if count <= draft_len]
