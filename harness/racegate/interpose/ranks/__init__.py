"""Programs of several ranks: a virtual NCCL, and one process that knows what all ranks do.

Knows collectives, who waits for whom, and when nobody can go on. It judges no program.
"""
