"""The probe: what an observer is told at the boundaries of a step, and the one that records it.

A new observation field is taken in `recording`; a detail for the invariants in `details`. Field
names are public. A probe changes nothing: it takes snapshots and copies, waits for nothing, and is
not part of the program. It must not know rows' code or the runner.
"""
