"""Sampling: which part of the engine a mutant belongs to, by who executes its statement, and a
sample in which every feature has the same weight, and within it every operator.

A statement belongs to the feature that most of the scripts that execute it have, and few of those
that do not: no list of files says so, so that code that moves takes its mutants along.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from itertools import zip_longest
from pathlib import Path

from racegate.check.checker import Checkers
from racegate.explore.features.catalogue import FEATURE_BY_NAME, features_of
from racegate.explore.features.facts import facts_of
from racegate.measure.evaluation.source.results import SourceMutant
from racegate.scenario.files import load_all, scenario_paths

# Of the catalogue, those that have lines of their own. What nearly every script executes is the
# core; what none does is mutated too, and missed.
MUTATED = (
    "cache_mode = align",
    "cache_mode = all",
    "cache_mode = offload",
    "state migration",
    "layout = slots",
    "cascade = on",
    "positions = three-dimensional",
    "drafts behind an image",
    "constrained row",
    "draft_sampling = random",
    "drafter = mtp",
    "drafter = ngram",
    "drafter = extract_hidden_states",
    "rejection",
    "graph replay",
    "graph_mode = piecewise",
    "zeroing = fresh",
    "dummy step between steps",
    "preemption",
    "condense move",
    "numerics = float32",
    "rotary = partial",
)
CORE, UNRUN = "core", "run by no script"
# How much larger the share of scripts that execute a statement has to be where the feature is.
CONTRAST_LEAST = 0.5


class ScriptFeatures:
    """Which scripts have which of the mutated features. scripts: features by name of the script"""

    def __init__(self, scripts: Mapping[str, Set[str]]) -> None:
        assert FEATURE_BY_NAME.keys() >= set(MUTATED)
        self._scripts = frozenset(scripts)
        self._having = {
            name: frozenset(script for script, features in scripts.items() if name in features)
            for name in MUTATED
        }

    def of(self, judges: Sequence[str]) -> str:
        """The one that a statement belongs to which these scripts and witnesses execute."""
        here = self._scripts.intersection(judges)
        contrast = {name: self._contrast(here, having) for name, having in self._having.items()}
        best = max(contrast, key=lambda name: contrast[name])
        return best if contrast[best] >= CONTRAST_LEAST else CORE

    def _contrast(self, here: frozenset[str], having: frozenset[str]) -> float:
        others = self._scripts - having
        if not having or not others:
            return 0.0
        return len(here & having) / len(having) - len(here & others) / len(others)


def script_features(folder: Path) -> ScriptFeatures:
    """Runs every script of a folder once, eagerly, and looks at what it has."""
    checkers, found = Checkers(), {}
    for _, scenario in load_all(scenario_paths(folder)):
        run = checkers.of(scenario).execute()
        found[scenario.name] = features_of(facts_of(scenario, run))
    return ScriptFeatures(found)


def in_turns(mutants: Sequence[SourceMutant], *, most: int, seed: int) -> list[SourceMutant]:
    """So many of them by seed, one of each operator, then another one of each. Each has a place of
    its own in the draw, so that a larger sample contains a smaller one.
    """
    by_operator: dict[str, list[SourceMutant]] = defaultdict(list)
    for one in sorted(mutants, key=lambda one: random.Random(f"{seed} {one.key}").random()):
        by_operator[one.edit.operator].append(one)
    turns = zip_longest(*(some for _, some in sorted(by_operator.items())))
    return [one for turn in turns for one in turn if one is not None][:most]
