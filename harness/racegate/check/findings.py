"""Findings from what the oracles of this engine saw: one per signature, worded so that a runner
developer can act on it. Those of any engine's trace and output are in oracles/findings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from racegate.device.protocol import DeadlockError, FootprintError
from racegate.engine.ranks.meeting import MismatchError
from racegate.history.finding import Finding, FindingKind
from racegate.history.run import EngineResult, Run
from racegate.oracles.findings import signature
from racegate.oracles.invariants import Violation
from racegate.oracles.missing_edge import label
from racegate.oracles.ranks import WrongPair
from racegate.oracles.stepwise import Divergence

_END = "end."
COLLECTIVES = "collectives"  # the field of a mismatch
# What a digest is made of: a field that a later version adds to Finding changes no old digest.
_DIGESTED = (
    "kind",
    "signature",
    "message",
    "buffer",
    "op",
    "other",
    "edge",
    "step",
    "request",
    "layer",
    "field",
    "expected",
    "actual",
)


def from_divergence(divergence: Divergence | None) -> list[Finding]:
    """The first place where a run leaves the reference, if it does."""
    if divergence is None:
        return []
    field = f"{divergence.boundary}.{divergence.field}"
    layer = "" if divergence.layer is None else f" of layer {divergence.layer}"
    where = "" if divergence.index is None else f" at {list(divergence.index)}"
    whom = "" if divergence.request is None else f" of request {divergence.request}"
    whom += "" if divergence.rank is None else f" on rank {divergence.rank}"
    return [
        Finding(
            kind=FindingKind.DIVERGENCE,
            signature=signature("divergence", field),
            message=f"step {divergence.step}: {field}{layer}{whom}{where} is {divergence.actual}, "
            f"the reference has {divergence.expected}",
            step=divergence.step,
            request=divergence.request,
            layer=divergence.layer,
            field=field,
            expected=divergence.expected,
            actual=divergence.actual,
            rank=divergence.rank,
        )
    ]


def from_end(
    result: EngineResult | None, *, steps: int, finished: Mapping[str, str]
) -> list[Finding]:
    """A run whose observations are right, and that came to its end later than the reference, or
    for another reason. steps, finished: those of the reference
    """
    if result is None:
        return []
    pairs = {"steps": (result.steps, steps), "finished": (result.finished, dict(finished))}
    return [
        Finding(
            kind=FindingKind.DIVERGENCE,
            signature=signature("divergence", f"{_END}{name}"),
            message=f"{_END}{name} is {actual}, the reference has {expected}",
            field=f"{_END}{name}",
            expected=expected,
            actual=actual,
        )
        for name, (actual, expected) in pairs.items()
        if actual != expected
    ][:1]


def is_of_the_end(finding: Finding) -> bool:
    """Whether it says how a run ended, not what it did."""
    return finding.field is not None and finding.field.startswith(_END)


def from_mismatch(mismatch: WrongPair | None) -> list[Finding]:
    """The first collective that pairs with another one, if one does."""
    if mismatch is None:
        return []
    first, other = mismatch.first.name, mismatch.other.name
    return [
        Finding(
            kind=FindingKind.MISMATCH,
            signature=signature("mismatch", label(first), label(other)),
            message=f"collective {mismatch.number} is {first} on one rank and {other} on another: "
            "each goes on with what was meant for something else; let all ranks decide by what "
            "all of them know",
            op=first,
            other=other,
            step=mismatch.other.step,
            field=COLLECTIVES,
            expected=first,
            actual=other,
        )
    ]


def from_violations(violations: Sequence[Violation]) -> list[Finding]:
    """One finding per invariant that does not hold, from the first place."""
    findings: dict[str, Finding] = {}
    for seen in violations:
        found = signature("invariant", seen.invariant)
        if found in findings:
            continue
        whom = "" if seen.request is None else f" for request {seen.request}"
        findings[found] = Finding(
            kind=FindingKind.INVARIANT,
            signature=found,
            message=f"step {seen.step}, {seen.boundary}: {seen.invariant} does not hold{whom}: "
            f"{seen.message}",
            step=seen.step,
            request=seen.request,
            field=seen.invariant,
            actual=seen.message,
        )
    return list(findings.values())


def _outside_footprint(error: FootprintError) -> Finding:
    """It is the fault of the engine under test, not of the harness."""
    operation = error.operation.partition("@")[0]
    return Finding(
        kind=FindingKind.FOOTPRINT,
        signature=signature("footprint", error.buffer, operation),
        message=f"{error}; no edge can order what is not declared, and the run was stopped there",
        buffer=error.buffer,
        op=error.operation,
        actual=str(error),
    )


def from_stop(error: Exception | None) -> list[Finding]:
    """What stopped the engine, if anything did."""
    if error is None:
        return []
    if isinstance(error, FootprintError):
        return [_outside_footprint(error)]
    kinds = {DeadlockError: FindingKind.DEADLOCK, MismatchError: FindingKind.MISMATCH}
    kind = kinds.get(type(error), FindingKind.CRASH)
    return [
        Finding(
            kind=kind,
            signature=signature(str(kind), type(error).__name__),
            message=f"the engine stopped: {type(error).__name__}: {error}",
            field=COLLECTIVES if kind is FindingKind.MISMATCH else None,
            actual=str(error),
        )
    ]


def digest_of(run: Run, findings: Sequence[Finding]) -> str:
    """A hash of everything a run showed: observed values, and findings without their commands."""
    state = hashlib.sha256()
    for observation in run.observations:
        state.update(f"{observation.step}/{observation.boundary}".encode())
        for name in sorted(observation.values):
            value = observation.values[name]
            state.update(name.encode())
            is_array = isinstance(value, np.ndarray)
            state.update(
                value.tobytes() if is_array else msgspec.json.encode(value, order="sorted")
            )
    for finding in findings:
        said = {name: getattr(finding, name) for name in _DIGESTED}
        state.update(msgspec.json.encode(said | {"replay": ""}))
    return state.hexdigest()
