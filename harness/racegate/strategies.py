"""Hypothesis strategies: `scenarios()` draws valid scenarios, simplest first, and `holds()` a few
holds. Only who imports this needs Hypothesis.
"""

from racegate.explore.strategies import holds, scenarios

__all__ = ["holds", "scenarios"]
