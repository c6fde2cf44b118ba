"""What targets of a fleet have shown, side by side: from their stores, while it runs or later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from racegate.check.selfcheck import SelfCheck, together
from racegate.history.witness import Witness
from racegate.jobs.generated import NOT_RUN
from racegate.jobs.stores.choice import stores_of_targets
from racegate.jobs.stores.folder import raw_name, witness_name
from racegate.jobs.stores.records import CampaignState, KeptFinding, ScenarioAside, Sighting


class TargetColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A target. name: in the fleet's file; title: what is judged

    scenarios: looked at; verdicts: these by what they came to; not_run: of them those that it does
        not run
    set_aside: scenarios of which nothing is known
    """

    name: str
    title: str
    scenarios: int
    verdicts: dict[str, int]
    not_run: int
    set_aside: tuple[ScenarioAside, ...]
    selfcheck: SelfCheck

    @property
    def judged(self) -> int:
        """Scenarios of which something is known."""
        return self.scenarios - self.not_run - len(self.set_aside)


class TargetCell(msgspec.Struct, frozen=True, kw_only=True):
    """A signature on one target. target: its name; hits: scenarios that showed it

    scenario: index of the first one that did, of the seed; seen: when scenarios showed it, null if
        none says
    replay: the command that shows it again, beside the scenario's file
    """

    target: str
    hits: int
    seed: int
    scenario: int
    seen: Sighting | None
    replay: str


class SignatureRow(msgspec.Struct, frozen=True, kw_only=True):
    """A signature. cells: of the targets that show it; without: targets that judged scenarios and
    do not
    """

    signature: str
    cells: tuple[TargetCell, ...]
    without: tuple[str, ...]


class TargetMatrix(msgspec.Struct, frozen=True, kw_only=True):
    """Targets by signatures. targets: in their order; rows: by signature"""

    targets: tuple[TargetColumn, ...]
    rows: tuple[SignatureRow, ...]


Kept = tuple[Sequence[CampaignState], Sequence[KeptFinding]]


def matrix_of(kept: Mapping[str, Kept]) -> TargetMatrix:
    """kept: what the store of each target has, by its name"""
    columns = tuple(_column(name, states) for name, (states, _) in kept.items())
    found: dict[str, list[TargetCell]] = {}
    for name, (states, findings) in kept.items():
        for one in findings:
            # What was heard of before its turn may lie behind where a target was given up.
            if any(one.signature in state.hits for state in states):
                found.setdefault(one.signature, []).append(_cell(name, states, one))
    rows = []
    for signature, cells in sorted(found.items()):
        shows = {cell.target for cell in cells}
        without = (each.name for each in columns if each.judged and each.name not in shows)
        rows.append(SignatureRow(signature=signature, cells=tuple(cells), without=tuple(without)))
    return TargetMatrix(targets=columns, rows=tuple(rows))


def matrix_in(where: str) -> TargetMatrix | None:
    """Of a fleet's folder, or of the store that fleets share; None where none is. Raises
    StoreError.
    """
    stores = stores_of_targets(where)
    kept = {name: (store.states(), store.findings()) for name, store in stores.items()}
    return matrix_of(kept) if kept else None


def _column(name: str, states: Sequence[CampaignState]) -> TargetColumn:
    verdicts: Counter[str] = Counter()
    for state in states:
        verdicts.update(state.verdicts)
    return TargetColumn(
        name=name,
        title=" and ".join(dict.fromkeys(state.target for state in states)),
        scenarios=sum(state.done for state in states),
        verdicts=dict(sorted(verdicts.items())),
        not_run=sum(state.scenarios_with.get(NOT_RUN, 0) for state in states),
        set_aside=tuple(aside for state in states for aside in state.set_aside),
        selfcheck=together(state.selfcheck for state in states),
    )


def _cell(name: str, states: Sequence[CampaignState], one: KeptFinding) -> TargetCell:
    seen = [state.seen[one.signature] for state in states if one.signature in state.seen]
    file = (witness_name if one.is_minimal else raw_name)(one.signature)
    # What a revision showed is run with its sources.
    is_own = isinstance(one.witness, Witness)
    return TargetCell(
        target=name,
        hits=sum(state.hits.get(one.signature, 0) for state in states),
        seed=one.seed,
        scenario=one.index,
        seen=Sighting(first=min(at.first for at in seen), last=max(at.last for at in seen))
        if seen
        else None,
        replay=one.witness.title if is_own else f"racegate replay {file}",
    )
