"""What a person reads of the repair of a program, beside its diff."""

from __future__ import annotations

from racegate.targets.program.repairs.proof import ProgramRepair, PutIn, UnrepairedRace

_WAITS = {
    "nobody": "nobody waits",
    "stream": "a stream waits",
    "host": "the host waits",
    "device": "the host waits for the whole device",
}


def render_repair(found: ProgramRepair, command: str) -> str:
    """All but the diff. command: the script with its arguments"""
    if found.reason:
        return f"repair of {command}: {found.before}; {found.reason}"
    lines = [line for at, edge in enumerate(found.edges, start=1) for line in _edge_lines(at, edge)]
    lines += [line for one in found.left for line in _left_lines(one)]
    if found.edges:
        proof = f"before  {found.before}; after  {found.after}"
        lines.append(proof if not found.under_holds else f"{proof}; {_under(found)}")
    if found.others:
        lines.append("others that repair as much, cheapest first:")
        lines += [f"  {text}" for text in found.others]
    return "\n".join([*lines, _closing(found, command)])


def _under(found: ProgramRepair) -> str:
    return f"under the holds of the witness  {found.under_holds}"


def _edge_lines(at: int, edge: PutIn) -> list[str]:
    return [
        f"edge {at}  {edge.words}",
        f"  price    {price_text(edge)}",
        f"  repairs  {', '.join(edge.repairs)}",
        f"  without  {', '.join(edge.without)} again",
        "",
    ]


def price_text(edge: PutIn) -> str:
    """Who waits for an edge, and for how much."""
    if edge.waiter == "nobody":
        return _WAITS[edge.waiter]
    plural = "" if edge.operations == 1 else "s"
    return f"{_WAITS[edge.waiter]}, for {edge.operations} operation{plural} that it did not know of"


def _left_lines(one: UnrepairedRace) -> list[str]:
    return [
        f"NOT REPAIRED [{one.signature}] {one.buffer}: {one.reason}",
        *(f"  tried  {text}" for text in one.tried),
        "",
    ]


def _closing(found: ProgramRepair, command: str) -> str:
    done, all_of = len(found.conflicts) - len(found.left), len(found.conflicts)
    plural = "" if len(found.edges) == 1 else "s"
    said = f"{done} of {all_of} conflicts repaired by {len(found.edges)} edge{plural}"
    cut = "" if found.is_complete else ", and not every candidate was run"
    return f"racegate: {command}: {said}, after {found.runs} runs{cut}"
