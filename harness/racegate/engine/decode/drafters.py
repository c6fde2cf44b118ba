"""Makes the drafter a scenario asks for."""

from __future__ import annotations

from collections.abc import Mapping

from racegate.device.protocol import Device, Stream
from racegate.engine.decode.drafter import Drafter, NoDrafter
from racegate.engine.decode.extract_drafter import ExtractDrafter
from racegate.engine.decode.mtp_drafter import MtpDrafter
from racegate.engine.decode.parts import DecodeParts
from racegate.engine.decode.scripted_drafter import ScriptedDrafter
from racegate.engine.model.model import Model
from racegate.engine.state.sizes import Sizes
from racegate.scenario.spec import DrafterKind, Scenario


def make_drafter(
    scenario: Scenario,
    device: Device,
    stream: Stream,
    model: Model,
    *,
    sizes: Sizes,
    truth: Mapping[str, tuple[int, ...]],
    parts: DecodeParts,
) -> Drafter:
    match scenario.engine.drafter:
        case DrafterKind.SCRIPTED:
            return ScriptedDrafter(scenario, device, stream, truth=dict(truth))
        case DrafterKind.MTP:
            return MtpDrafter(scenario, device, stream, model, sizes=sizes, start=parts.draft_start)
        case DrafterKind.EXTRACT_HIDDEN_STATES:
            return ExtractDrafter(scenario, device, stream, sizes=sizes)
        case DrafterKind.NONE:
            return NoDrafter()
