"""What runs inside SGLang's own environment: the scheduler on the virtual device with a tiny model,
what is observed of it, and the process that is forked for each run.

Needs torch, NumPy and msgspec, which SGLang brings. Knows SGLang's names; nothing else here does.
"""
