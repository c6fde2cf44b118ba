"""How vLLM is asked for drafts: by which of its proposers, and with what files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.inside.scripted.model import drafter_config
from racegate.targets.vllm.wire import (
    NGRAM_MAX,
    NGRAM_MIN,
    DraftMode,
    DraftSchedule,
    ProposerKind,
)

DRAFTER = "drafter"  # the folder of its files
# As vLLM calls what proposes drafts: of n-grams it schedules the one on the host synchronously.
_METHODS = {
    ProposerKind.MTP: "mtp",
    ProposerKind.NGRAM: "ngram_gpu",
    ProposerKind.EAGLE: "eagle",
    ProposerKind.EAGLE3: "eagle3",
    ProposerKind.MODEL: "draft_model",
}
OWN_MODELS = frozenset({ProposerKind.EAGLE, ProposerKind.EAGLE3})
LAYERS_HEARD = 3  # whose hidden states a drafter of EAGLE-3 is given
_CHANGES = "supports_draft_decode_metadata_update"  # by an attention backend
_BY_BATCH = "num_speculative_tokens_per_batch_size"


def asked_drafts(asked: Cell, folder: Path) -> dict[str, Any]:
    """How drafts are proposed. Raises RuntimeError if the release cannot do so. folder: for the
    files of a drafter that is a model of its own
    """
    from vllm.config.speculative import SpeculativeConfig

    names = {field.name for field in dataclasses.fields(SpeculativeConfig)}
    chosen: dict[str, Any] = {
        "method": _METHODS[asked.drafter],
        "num_speculative_tokens": asked.drafts,
        "attention_backend": "TRITON_ATTN",
    }
    if asked.drafter in OWN_MODELS or asked.drafter is ProposerKind.MODEL:
        (folder / DRAFTER).mkdir()
        files = drafter_config(asked.vocabulary)
        if asked.drafter is ProposerKind.EAGLE3:
            files["eagle_aux_hidden_state_layer_ids"] = list(range(LAYERS_HEARD))
            files["draft_vocab_size"] = files["vocab_size"]
        (folder / DRAFTER / "config.json").write_text(json.dumps(files))
        chosen["model"] = str(folder / DRAFTER)
    if asked.drafter is ProposerKind.NGRAM:
        chosen |= {"prompt_lookup_min": NGRAM_MIN, "prompt_lookup_max": NGRAM_MAX}
    if asked.draft_mode is not DraftMode.GREEDY:
        if "draft_sample_method" not in names:
            raise RuntimeError("this release has no probabilistic drafts")
        chosen["draft_sample_method"] = asked.draft_mode.value
    if asked.draft_schedule is DraftSchedule.BY_BATCH:
        if _BY_BATCH not in names:
            raise RuntimeError("this release has the same number of drafts in every step")
        chosen[_BY_BATCH] = drafts_by_batch(asked.drafts)
    return {name: value for name, value in chosen.items() if name in names}


def drafts_by_batch(most: int) -> list[tuple[int, int, int]]:
    """(first, last size of a batch, drafts of a request): one less beside another request, and one
    in a batch that is full.
    """
    return [(1, 1, most), (2, 3, max(1, most - 1)), (4, 4, 1)]


def draft_pass_by_pass() -> None:
    """Each pass of runner V2's drafter is a graph of its own, in front of which the host makes
    metadata: so it is with attention backends that cannot change these inside of a graph.
    """
    from vllm.v1.worker.utils import AttentionGroup

    if hasattr(AttentionGroup, _CHANGES):
        setattr(AttentionGroup, _CHANGES, False)
