"""What a cell asks of a release before the engine is made, and which script its model and drafter
follow in a scenario.
"""

from __future__ import annotations

from racegate.scenario.spec import Scenario
from racegate.targets.common.wire import Fidelity
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.inside.scripted.computed import Known
from racegate.targets.vllm.inside.scripted.images import take_images
from racegate.targets.vllm.inside.scripted.model import Script
from racegate.targets.vllm.inside.scripted.ngrams import NgramScript
from racegate.targets.vllm.inside.scripted.speculation import draft_pass_by_pass
from racegate.targets.vllm.inside.scripted.windows import give_windows
from racegate.targets.vllm.wire import CaptureMode, ImageMode, ProposerKind

_SUFFIX = "0" * 8  # of the identity that a request has in the engine


def fit_release(asked: Cell) -> None:
    """Before the engine is made."""
    if asked.graphs is CaptureMode.FEW:
        draft_pass_by_pass()
    if asked.images is ImageMode.ENCODED:
        take_images(asked.drafter)
    give_windows(asked.layers)
    _name_requests_alike()


def _name_requests_alike() -> None:
    """A request has the same identity in every run: releases end with a random number what its
    client calls it, and some free rows and slots in the order of a set of these. Names of a
    scenario's requests are unique.
    """
    try:
        import vllm.v1.engine.input_processor as processor
    except ImportError:  # an older release, which adds none
        return
    if hasattr(processor, "random_uuid"):
        processor.random_uuid = lambda: _SUFFIX


def script_of(
    asked: Cell,
    scenario: Scenario,
    plain: dict[str, tuple[int, ...]],
    *,
    lies: bool,
    device: str,
) -> Script:
    """plain: what the model says in plain decoding, if it computes that; lies: it says something
    else than what is scripted; device: where tokens are asked for
    """
    if asked.drafter is ProposerKind.NGRAM and asked.drafts:
        return NgramScript(
            scenario, draft_len=asked.drafts, runner=asked.runner, lies=lies, device=device
        )
    if asked.fidelity is Fidelity.FULL:
        return Known(scenario, plain, draft_len=asked.drafts, device=device)
    return Script(
        scenario,
        draft_len=asked.drafts,
        lies=lies,
        device=device,
        draft_mode=asked.draft_mode,
        positions=asked.positions,
        ahead=1 if asked.drafter is ProposerKind.MODEL else 2,
    )
