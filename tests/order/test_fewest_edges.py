"""Which conflicts one missing edge explains."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from racegate.order.causes import UnorderedInterval, fewest_edges

GAPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(1, 6)).map(
        lambda one: UnorderedInterval(one[0], one[1], one[1] + one[2])
    ),
    max_size=7,
)


def are_apart(one: UnorderedInterval, other: UnorderedInterval) -> bool:
    """Whether no edge orders both."""
    return one.between != other.between or one.second <= other.first or other.second <= one.first


@given(GAPS)
def test_one_edge_orders_all_conflicts_of_a_cause_and_no_fewer_edges_order_all(
    gaps: list[UnorderedInterval],
) -> None:
    edges = fewest_edges(gaps)
    assert sorted(at for edge in edges for at in edge) == list(range(len(gaps)))
    for edge in edges:
        found = [gaps[at] for at in edge]
        assert len({gap.between for gap in found}) == 1
        assert max(gap.first for gap in found) < found[0].second == min(g.second for g in found)
    # Conflicts of which no two share an edge need one each.
    apart = max(
        (
            count
            for count in range(len(gaps) + 1)
            for chosen in combinations(gaps, count)
            if all(are_apart(one, other) for one, other in combinations(chosen, 2))
        ),
        default=0,
    )
    assert len(edges) == apart
