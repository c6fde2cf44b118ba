"""What runs inside vLLM's own environment: the engine on the virtual device, its scripted model,
what is observed of its runner, and the loop that forks a process per run.

Needs torch, NumPy and msgspec, which vLLM brings. Knows vLLM's names; nothing else here does.
"""
