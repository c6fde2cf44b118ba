"""Litmus: a program of the litmus language with the outcomes that CUDA's ordering rules permit."""

from __future__ import annotations

from dataclasses import dataclass

Outcome = tuple[int, ...]  # what the reads and queries of a program saw, in order


@dataclass(frozen=True, slots=True)
class Litmus:
    """racy: whether the ordering oracle must find a conflict in any one run."""

    name: str
    program: str
    allowed: frozenset[Outcome]
    racy: bool


def litmus(name: str, program: str, *allowed: Outcome, racy: bool = False) -> Litmus:
    """A program and every outcome it may have."""
    return Litmus(name, program, frozenset(allowed), racy)
