"""How vLLM is asked for drafts: by which of its proposers, and with what files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.inside.scripted.model import drafter_config
from racegate.targets.vllm.wire import NGRAM_MAX, NGRAM_MIN, DraftMode, ProposerKind

DRAFTER = "drafter"  # the folder of its files
# As vLLM calls what proposes drafts: of n-grams it schedules the one on the host synchronously.
_METHODS = {
    ProposerKind.MTP: "mtp",
    ProposerKind.NGRAM: "ngram_gpu",
    ProposerKind.EAGLE: "eagle",
    ProposerKind.MODEL: "draft_model",
}


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
    if asked.drafter in (ProposerKind.EAGLE, ProposerKind.MODEL):
        (folder / DRAFTER).mkdir()
        (folder / DRAFTER / "config.json").write_text(json.dumps(drafter_config()))
        chosen["model"] = str(folder / DRAFTER)
    if asked.drafter is ProposerKind.NGRAM:
        chosen |= {"prompt_lookup_min": NGRAM_MIN, "prompt_lookup_max": NGRAM_MAX}
    if asked.draft_mode is not DraftMode.GREEDY:
        if "draft_sample_method" not in names:
            raise RuntimeError("this release has no probabilistic drafts")
        chosen["draft_sample_method"] = asked.draft_mode.value
    return {name: value for name, value in chosen.items() if name in names}
