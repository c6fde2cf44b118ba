"""Makes the drafter a scenario asks for."""

from __future__ import annotations

from collections.abc import Mapping

from racegate.engine.decode.drafter import Drafter
from racegate.engine.decode.extract_drafter import ExtractDrafter
from racegate.engine.decode.mtp_drafter import MtpDrafter
from racegate.engine.decode.ngram_drafter import NgramDrafter
from racegate.engine.decode.parts import DecodeParts
from racegate.engine.decode.scripted_drafter import ScriptedDrafter
from racegate.engine.model.model import Model
from racegate.engine.state.setup import Setup
from racegate.scenario.settings import DrafterKind


def make_drafter(
    setup: Setup, model: Model, parts: DecodeParts, *, truth: Mapping[str, tuple[int, ...]]
) -> Drafter:
    """truth: the true tokens of each request, for the scripted drafter."""
    match setup.scenario.engine.drafter:
        case DrafterKind.SCRIPTED:
            return ScriptedDrafter(setup, truth=truth)
        case DrafterKind.MTP:
            return MtpDrafter(setup, model, start=parts.draft_start)
        case DrafterKind.EXTRACT_HIDDEN_STATES:
            return ExtractDrafter(setup)
        case DrafterKind.NGRAM:
            return NgramDrafter(setup)
        case DrafterKind.NONE:
            return Drafter()
