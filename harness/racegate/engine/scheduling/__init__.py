"""Which requests a step computes, how many tokens of each, and in which blocks.

Change here admission, preemption, budgets, prefix hits and how counters run ahead of the device.
The scheduler sees plans and delivered tokens only: it must not know rows, buffers or the device.
"""
