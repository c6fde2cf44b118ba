"""Images that are encoded: vLLM schedules an encoder, keeps what it made and merges it into the
embeddings of a prompt. The encoder is hollow, as the model is: an embedding says which token it is
of, and which one of its image.

The model of text takes images by this, and there is no processor of pictures: a request comes with
what one would have made of it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from racegate.scenario.spec import Request
from racegate.targets.common.inside.session import EngineSession, Tensor
from racegate.targets.common.inside.watch import Watch
from racegate.targets.vllm.wire import ProposerKind

MODALITY = "image"
TOKEN, PLACE = 1, 2  # columns of an embedding: the token, and 1 for the first one of an image
ENCODED_MAX = 64  # tokens of images in one step: two large ones are not encoded at once
NO_TOKEN = -1  # an image has tokens of its own, which no token of text stands for
_KEY = "image_tokens"  # of what a processor would have made


def take_images(drafter: ProposerKind) -> None:
    """Before the engine is made. drafter: a model of its own knows text alone"""
    from transformers import PretrainedConfig

    from vllm.model_executor.models import qwen3_5, qwen3_next, qwen3_next_mtp, registry
    from vllm.multimodal.registry import MultiModalRegistry

    for model in (qwen3_next.Qwen3NextForCausalLM, qwen3_5.Qwen3_5ForCausalLM):
        model.supports_multimodal = True
        model.requires_raw_input_tokens = False
        model.get_language_model = lambda self: self
    configs: Any = PretrainedConfig
    configs.image_token_index = NO_TOKEN  # runner V1 hands it to a drafter's model
    qwen3_next_mtp.Qwen3NextMTP.supports_multimodal_embeddings = drafter is ProposerKind.MTP
    # What a release has found out of its models is kept, and is of those that take text.
    lazy: Any = registry._LazyRegisteredModel
    lazy._load_modelinfo_from_cache = lambda self, digest: None
    lazy._save_modelinfo_to_cache = lambda self, found, digest: None
    MultiModalRegistry.create_processor = _processor
    MultiModalRegistry.get_processing_info = MultiModalRegistry._create_processing_info = _limits


def _processor(registry: Any, model_config: Any, **kwargs: Any) -> Any:
    return SimpleNamespace(info=_limits(registry, model_config), cache=None)


def _limits(registry: Any, model_config: Any, *args: Any, **kwargs: Any) -> Any:
    """What is asked of a processor: how many images there may be, and how large."""
    return SimpleNamespace(
        ctx=SimpleNamespace(model_config=model_config),
        supported_mm_limits={MODALITY: None},
        allowed_mm_limits={MODALITY: 8},
        skip_prompt_length_check=False,
        get_mm_max_tokens_per_item=lambda **asked: {MODALITY: ENCODED_MAX},
    )


def limit_encoding(scheduler: Any) -> None:
    """A step encodes fewer images than requests may bring, as a large batch's does."""
    scheduler.max_num_encoder_input_tokens = ENCODED_MAX


def prompt_with(request: Request, tokens: list[int]) -> dict[str, Any]:
    """What a processor would have made of a request. tokens: of its prompt"""
    if not request.images:
        return {"type": "token", "prompt_token_ids": tokens}
    from vllm.multimodal.inputs import (
        MultiModalBatchedField,
        MultiModalFieldElem,
        MultiModalKwargsItem,
        PlaceholderRange,
    )

    places = [PlaceholderRange(offset=one.start, length=one.tokens) for one in request.images]
    shown = [torch.tensor(tokens[one.offset : one.offset + one.length]) for one in places]
    items = [
        MultiModalKwargsItem({_KEY: MultiModalFieldElem(data=one, field=MultiModalBatchedField())})
        for one in shown
    ]
    return {
        "type": "multimodal",
        "prompt_token_ids": tokens,
        "mm_kwargs": {MODALITY: items},
        "mm_hashes": {MODALITY: [f"{request.name} {number}" for number in range(len(items))]},
        "mm_placeholders": {MODALITY: places},
    }


class HollowImages:
    """Takes the place of an encoder, and of embeddings. watch: counts images; size: of each"""

    def __init__(self, session: EngineSession, watch: Watch, *, size: int) -> None:
        self._session = session
        self._watch = watch
        self._size = size

    def replace(self, model: Any) -> None:
        """model: a module of vLLM"""
        model.embed_multimodal = self.encode
        model.embed_input_ids = self.embed

    def encode(self, **given: Any) -> list[Tensor]:
        """An embedding for each token of each image."""
        self._watch.counters["encoded_images"] += len(given[_KEY])
        return [self._made(tokens, is_image=1) for tokens in given[_KEY]]

    def embed(
        self,
        input_ids: Tensor,
        multimodal_embeddings: list[Tensor] | None = None,
        *,
        is_multimodal: Tensor | None = None,
    ) -> Tensor:
        """Of tokens, with those of images in their places."""
        found = self._made(input_ids, is_image=0)
        if not multimodal_embeddings or is_multimodal is None:
            return found
        where = is_multimodal.to(found.device, non_blocking=True)

        def work(given: list[Tensor], made: list[Tensor]) -> None:
            marked, *images = given
            made[0][: len(marked)][marked] = torch.cat(images)

        self._session.launch("embeddings merged", [where, *multimodal_embeddings], [found], work)
        return found

    def _made(self, tokens: Tensor, *, is_image: int) -> Tensor:
        made = torch.empty((len(tokens), self._size), device="cuda")

        def work(given: list[Tensor], made: list[Tensor]) -> None:
            made[0].zero_()
            made[0][:, TOKEN] = given[0]
            made[0][:, PLACE] = is_image * torch.arange(1, len(given[0]) + 1)

        self._session.launch("embeddings (hollow)", [tokens], [made], work)
        return made
