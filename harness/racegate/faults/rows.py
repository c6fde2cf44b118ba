"""Faults of the persistent batch's rows (docs/faults.md#rows)."""

from __future__ import annotations

from collections.abc import Callable

from racegate.device.protocol import HostBuffer
from racegate.engine.rows.parts import RowParts, row_tables
from racegate.engine.state.buffers import Inputs
from racegate.faults.fault import Fault, FaultKind, Need, the_parts


def alias_rows(name: str) -> Callable[[HostBuffer, int, int], None]:
    """Swaps rows by exchanging two views of one table, which leaves both rows equal."""

    def swap(table: HostBuffer, first: int, second: int) -> None:
        if table.name == name:
            table.move_row(second, first)
        else:
            table.swap_rows(first, second)

    return swap


def without_state_table(inputs: Inputs) -> tuple[HostBuffer, ...]:
    """The state table stays where its rows were written, as if they were request slots."""
    return tuple(table for table in row_tables(inputs) if table is not inputs.state_table.cpu)


def without_block_table(inputs: Inputs) -> tuple[HostBuffer, ...]:
    """The same for the attention block table."""
    return tuple(table for table in row_tables(inputs) if table is not inputs.block_table.cpu)


FAULTS = (
    Fault(
        name="row-swap-alias",
        number=26,
        kind=FaultKind.LOGIC,
        origin="vllm#48419",
        summary="a swap leaves both rows of the block table with the same content",
        expect="inputs.slot_mapping",
        scenarios=("prefill-to-decode-swap", "condense-and-reorder"),
        parts=the_parts(rows=RowParts(swap_rows=alias_rows("block_table_cpu"))),
    ),
    Fault(
        name="row-swap-alias:seed",
        number=26,
        kind=FaultKind.LOGIC,
        origin="vllm#48419, #51890",
        summary="a swap leaves both rows with the same sampling seed",
        expect="sampled.sampled",
        scenarios=("random-rows-change-hands",),
        parts=the_parts(rows=RowParts(swap_rows=alias_rows("seed_cpu"))),
    ),
    Fault(
        name="slot-vs-row-index",
        number=27,
        kind=FaultKind.LOGIC,
        needs=(Need.HYBRID,),
        origin="vllm#55951, #55506, #55507",
        summary="state blocks are looked up by batch row in a table that is indexed by slot",
        expect="sampled.state",
        scenarios=("finish-and-condense", "condense-and-reorder"),
        parts=the_parts(rows=RowParts(row_tables=without_state_table)),
    ),
    Fault(
        name="slot-vs-row-index:attention",
        number=27,
        kind=FaultKind.LOGIC,
        needs=(Need.HYBRID,),
        origin="vllm#55951, #55506, #55507",
        summary="attention blocks are looked up by batch row in a table that is indexed by slot",
        expect="inputs.slot_mapping",
        scenarios=("finish-and-condense", "condense-and-reorder"),
        parts=the_parts(rows=RowParts(row_tables=without_block_table)),
    ),
)
