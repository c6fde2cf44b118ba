"""What runs inside any engine's own environment: the session that names operations, what is
observed, runs that share their beginning, and the loop that forks a process per run.

Needs torch, NumPy and msgspec, which every engine brings.
"""
