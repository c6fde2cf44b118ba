"""Hypothesis strategies: `scenarios()` draws valid scenarios, simplest first, `holds()` a few
holds, `held_scenarios()` one with the other. Only who imports this needs Hypothesis.
"""

from racegate.explore.strategies import held_scenarios, holds, scenarios

__all__ = ["held_scenarios", "holds", "scenarios"]
