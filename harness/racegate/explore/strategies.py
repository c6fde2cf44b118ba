"""Hypothesis strategies for scenarios and holds, and the profiles they are run with."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from racegate.explore.generate import generate, generate_holds
from racegate.explore.swarm import Pick
from racegate.history.schedule import Schedule
from racegate.scenario.settings import Layout
from racegate.scenario.spec import OwnScenario
from racegate.scenario.validation import validate


def _picker(draw: st.DrawFn) -> Pick:
    return lambda count: draw(st.integers(0, count - 1)) if count > 1 else 0


@st.composite
def scenarios(draw: st.DrawFn) -> OwnScenario:
    """Valid scenarios, simplest first."""
    return validate(generate(_picker(draw), name="generated"))


@st.composite
def holds(draw: st.DrawFn, layout: Layout = Layout.ROWS, ranks: int = 1) -> Schedule:
    """A few holds of what a layout has; the eager baseline is the simplest."""
    return generate_holds(_picker(draw), layout=layout, ranks=ranks)


@st.composite
def held_scenarios(draw: st.DrawFn) -> tuple[OwnScenario, Schedule]:
    """Valid scenarios, and for each a few holds of its layout."""
    scenario = draw(scenarios())
    return scenario, draw(holds(scenario.engine.layout, scenario.engine.ranks))


def register_profiles() -> None:
    """dev: quick; ci: the same examples every time, also mutants; nightly and campaign: many."""
    slow = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)
    calm = settings(deadline=None, suppress_health_check=slow)
    settings.register_profile("dev", calm, max_examples=50)
    settings.register_profile("ci", calm, max_examples=125, derandomize=True, database=None)
    # A failure is enough: nobody asks a mutant for its smallest one.
    ci = settings.get_profile("ci")
    settings.register_profile("mutants", ci, phases=(Phase.explicit, Phase.generate))
    settings.register_profile("nightly", calm, max_examples=10_000, print_blob=True)
    phases = (Phase.reuse, Phase.generate)
    settings.register_profile("campaign", calm, max_examples=1_000_000, phases=phases)
