"""What a person reads of the repair of a program, beside its diff."""

from __future__ import annotations

from racegate.targets.program.repairs.patches import PatchResult
from racegate.targets.program.repairs.proof import ProgramRepair, PutIn, UnrepairedRace


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


def render_patch(found: PatchResult, name: str) -> str:
    """What a patch does to a program. name: of the patch"""
    lines = [f"repairs  {signature}" for signature in found.repairs]
    for one in found.leaves:
        lines += [f"LEAVES   {one.signature} {one.buffer}", f"  edge   {one.edge}"]
        lines += [f"  shown  under: {hold}" for hold in one.holds]
    lines += [f"ADDS     {signature}: a conflict that was not there" for signature in found.adds]
    lines += [f"CHANGES  {found.refused}"] if found.refused else []
    lines += [f"not needed: the change at {place}" for place in found.unneeded]
    lines += [f"the host waits at {text}" for text in found.host_waits]
    lines += [f"a stream waits at {text}" for text in found.stream_waits]
    half = "all of it" if not found.leaves else f"{len(found.leaves)} conflicts are left"
    said = half if found.repairs or found.leaves else "nothing was to be repaired"
    return "\n".join(
        [*lines, f"racegate: {name}: before {found.before}, after {found.after}: {said}"]
    )


def _under(found: ProgramRepair) -> str:
    return f"under the holds of the witness  {found.under_holds}"


def _edge_lines(at: int, edge: PutIn) -> list[str]:
    return [
        f"edge {at}  {edge.words}",
        f"  price    {edge.price}",
        f"  repairs  {', '.join(edge.repairs)}",
        f"  without  {', '.join(edge.without)} again",
        "",
    ]


def _left_lines(one: UnrepairedRace) -> list[str]:
    return [
        f"NOT REPAIRED [{one.signature}] {one.buffer}: {one.reason}",
        *(f"  tried  {text}" for text in one.tried),
        "",
    ]


def _closing(found: ProgramRepair, command: str) -> str:
    left = {one.signature for one in found.left}
    done, all_of = len(set(found.conflicts) - left), len(found.conflicts)
    plural = "" if len(found.edges) == 1 else "s"
    said = f"{done} of {all_of} conflicts repaired by {len(found.edges)} edge{plural}"
    cut = "" if found.is_complete else ", but not all was tried or exercised"
    return f"racegate: {command}: {said}, after {found.runs} runs{cut}"
