"""The common prefix of a batch, which attention goes over once for all its rows
(docs/mechanism.md#common-prefix).

The host counts it from block tables and from lengths that it takes for exact: an entry that a row
has not computed would be seen by tokens that stand before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from racegate.device.protocol import Use, reads
from racegate.engine.state.buffers import Inputs
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import StepView


class CommonPrefix:
    """Whether there is one, and how long; without one attention takes every row by itself."""

    def stage(self, view: StepView) -> None:
        """The host tells the device."""

    def stage_idle(self, step: int) -> None:
        """Padding rows have nothing in common."""

    def uses(self, inputs: Inputs) -> Mapping[str, Use]:
        """What an attention layer reads of it."""
        return {}


class SharedPrefix(CommonPrefix):
    """The whole blocks with which the tables of all rows begin, as far as every row has computed
    them.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    def stage(self, view: StepView) -> None:
        """Counts it, and uploads the count."""
        tokens = self.tokens(view)
        self._put(tokens, step=view.shape.step)
        self.setup.counters.add("cascade_steps", tokens > 0 and view.shape.rows > 1)

    def stage_idle(self, step: int) -> None:
        """None of the last step stays."""
        self._put(0, step=step)

    def _put(self, tokens: int, *, step: int) -> None:
        self.setup.put(self.setup.inputs.common_prefix, np.array([tokens], np.int32), step=step)

    def tokens(self, view: StepView) -> int:
        """How many tokens it has."""
        return common_tokens(view.entries, block_size=self.setup.scenario.engine.block_size)

    def uses(self, inputs: Inputs) -> Mapping[str, Use]:
        return {"common_prefix": reads(inputs.common_prefix.gpu)}


def common_prefix(setup: Setup) -> CommonPrefix:
    """As the options say that are left when others have ruled theirs out."""
    return SharedPrefix(setup) if setup.scenario.engine.has_cascade else CommonPrefix()


def common_tokens(entries: Sequence[PlanEntry], *, block_size: int) -> int:
    """Tokens in the whole blocks that all tables begin with and all rows have computed. The plan's
    counts are exact where nothing in flight has drafts.
    """
    columns = zip(*(entry.blocks for entry in entries), strict=False)
    shared = next((at for at, blocks in enumerate(columns) if len(set(blocks)) > 1), None)
    if shared is None:
        shared = min(len(entry.blocks) for entry in entries)
    computed = min(entry.computed for entry in entries)
    return min(shared, computed // block_size) * block_size
