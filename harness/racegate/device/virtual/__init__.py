"""The virtual device: operations run on NumPy arrays when the pending queues let them.

Here: the device, its storage and copies, how a launch runs (launcher: plainly, under audit, by
memo). The launch path is hot: every schedule of a search goes through it.
It must not know CUDA, torch or Triton.
"""
