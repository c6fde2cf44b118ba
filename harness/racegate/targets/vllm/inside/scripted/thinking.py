"""Budgets for thinking: tokens that a request may say behind the one that begins its thoughts.

The first request thinks and has no budget, and every other has one of no token and never thinks. So
nobody is cut short, but whoever is given another's budget.
"""

from __future__ import annotations

from typing import Any

from racegate.targets.vllm.inside.scripted.model import VOCAB
from racegate.targets.vllm.wire import ThinkingMode

BEGINS = 5  # a token of the first request, of which scripts make a prompt's first
ENDS, FORCED = VOCAB - 1, VOCAB - 2  # nobody's tokens


def asked_budgets(thinking: ThinkingMode) -> dict[str, Any]:
    """Of vLLM's EngineArgs. Raises RuntimeError if the release has no such budgets."""
    if thinking is ThinkingMode.NONE:
        return {}
    try:
        from vllm.config.reasoning import ReasoningConfig
    except ImportError as error:
        raise RuntimeError("this release has no budgets for thinking") from error

    def initialize(self: Any, model_config: Any) -> None:
        """What a tokenizer would have made of words, of which there is none."""
        self._reasoning_start_token_ids = [BEGINS]
        self._reasoning_end_token_ids = [FORCED]
        self._natural_reasoning_end_token_ids = [ENDS]
        self._enabled = True

    ReasoningConfig.initialize_token_ids = initialize
    return {"reasoning_config": ReasoningConfig()}


def budget_of(own: range, thinking: ThinkingMode) -> dict[str, int]:
    """Of vLLM's sampling parameters. own: tokens of the request"""
    if thinking is ThinkingMode.NONE or not own.start:
        return {}
    return {"thinking_token_budget": 0}
