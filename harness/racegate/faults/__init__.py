"""Seeded faults: an edge the device drops, or another variant of one engine part. None is a branch
in the engine.
"""
