"""The persistent batch: rows of requests, with holes, condense and reorder
(docs/mechanism.md#rows).

Rows move on the host while results addressed by the previous row order are in flight. Whatever
crosses the step boundary is either moved with its row here (the row tables), or stays in
previous-row order and is reached through `PrevStep`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from racegate.device.protocol import HostBuffer
from racegate.engine.state.blocks import NULL_BLOCK
from racegate.engine.state.counters import Counters
from racegate.engine.state.plan import REGIONS, PlanEntry, region


class InputBatch:
    """Dense rows 0 .. n - 1 after `condense`.

    row_tables: pinned tables whose rows move with the requests
    block_tables: those among them whose rows are cleared when no request stands there (a stale row
        would let a padded or dummy row reach the blocks of a live request: vllm#49757)
    """

    def __init__(
        self,
        row_tables: Sequence[HostBuffer],
        block_tables: Sequence[HostBuffer],
        counters: Counters,
        *,
        swap_rows: Callable[[HostBuffer, int, int], None],
    ) -> None:
        self.rows: list[str | None] = []
        self.row_of: dict[str, int] = {}
        self._row_tables = tuple(row_tables)
        self._block_tables = tuple(block_tables)
        self._counters = counters
        self._swap_rows = swap_rows

    def __len__(self) -> int:
        return len(self.rows)

    def names(self) -> tuple[str, ...]:
        """Requests by row; only without holes."""
        names = tuple(name for name in self.rows if name is not None)
        assert len(names) == len(self.rows), "the batch has holes: condense first"
        return names

    def remove(self, name: str) -> None:
        """The request's row becomes a hole."""
        row = self.row_of.pop(name)
        self.rows[row] = None
        self._clear(row)

    def add(self, name: str) -> int:
        """A row for a new request: the lowest hole, else a new one at the end."""
        if None in self.rows:
            row = self.rows.index(None)
            self.rows[row] = name
        else:
            row = len(self.rows)
            self.rows.append(name)
        self.row_of[name] = row
        return row

    def condense(self) -> None:
        """Moves the last row into the lowest hole until there is none."""
        self._drop_holes_at_end()
        while None in self.rows:
            hole, source = self.rows.index(None), len(self.rows) - 1
            for table in self._row_tables:
                table.move_row(source, hole)
            self._clear(source)
            name = self.rows.pop()
            assert name is not None
            self.rows[hole] = name
            self.row_of[name] = hole
            self._counters.add("row_moves")
            self._counters.add("condense_moves")
            self._drop_holes_at_end()

    def _drop_holes_at_end(self) -> None:
        while self.rows and self.rows[-1] is None:
            self.rows.pop()

    def _clear(self, row: int) -> None:
        for table in self._block_tables:
            table.write_row(row, NULL_BLOCK)

    def swap(self, first: int, second: int) -> None:
        """Exchanges two rows."""
        for table in self._row_tables:
            self._swap_rows(table, first, second)
        a, b = self.rows[first], self.rows[second]
        assert a is not None and b is not None
        self.rows[first], self.rows[second] = b, a
        self.row_of[a], self.row_of[b] = second, first

    def permute(self, wanted: Sequence[int]) -> int:
        """Row i becomes what is now row wanted[i], by swaps along the cycles; returns the rows that
        moved.
        """
        wanted = list(wanted)
        moved = sum(source != row for row, source in enumerate(wanted))
        for start in range(len(wanted)):
            row = start
            while wanted[row] != start:
                source = wanted[row]
                self.swap(row, source)
                wanted[row] = row
                row = source
            wanted[row] = row
        self._counters.add("row_moves", moved)
        return moved

    def reorder(self, entries: dict[str, PlanEntry], *, threshold: int) -> None:
        """Sorts rows into regions, leaving rows in place whose place is right."""
        regions = [region(entries[name], threshold=threshold) for name in self.names()]
        places = sorted(regions)
        wanted = list(range(len(regions)))
        for kind in range(REGIONS):
            free = [i for i, r in enumerate(places) if r == kind and regions[i] != kind]
            misplaced = [i for i, r in enumerate(regions) if r == kind and places[i] != kind]
            for place, source in zip(free, misplaced, strict=True):
                wanted[place] = source
        self._counters.add("reorder_moves", self.permute(wanted))

    def rotate(
        self, names: Sequence[str], entries: dict[str, PlanEntry], *, threshold: int
    ) -> bool:
        """Request i takes the row of request i + 1; False if they are not all in one region."""
        if any(name not in self.row_of for name in names):
            return False
        if len({region(entries[name], threshold=threshold) for name in names}) > 1:
            return False
        wanted = list(range(len(self.rows)))
        for name, follower in zip(names, [*names[1:], names[0]], strict=True):
            wanted[self.row_of[follower]] = self.row_of[name]
        self._counters.add("reorder_moves", self.permute(wanted))
        return True
