"""Seeded faults: an edge the device drops or keeps at a wrong place, another variant of one engine
part, or of one kernel. One module per group of defects; `catalogue` finds them by name.

A new fault is an entry with its origin, where it shows, and the holds that show it. None is a
branch in the engine, and a fault must not know how it is found: no oracle, schedule or search.
"""
