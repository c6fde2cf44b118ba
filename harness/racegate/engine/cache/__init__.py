"""What is kept of prefixes, and what blocks hold when they change hands: columns of states that
move and stay at boundaries, zeroing of fresh blocks, the store in host memory.

A new cache mode is another `Columns`; what a configuration lacks is a null object beside the real
one. It must not know rows of the batch beyond a step's view, nor how tokens are drawn.
"""
