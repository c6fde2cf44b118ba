"""Oracles: each judges one run from its history, and knows nothing of the others.

Ordering (happens-before), ownership (whose value was read), stepwise (against the reference),
invariants (by id), losslessness (delivered tokens); paths explains what orders two events.
Change one with its file of tests/oracles and the kill matrix (reports/faults).
An oracle that calls the code it judges is none: no device, engine or fault is imported here.
"""
