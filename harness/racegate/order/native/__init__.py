"""What the recorder does at every event, in C: compiled on first use, kept, and loaded once.

Knows clocks, byte ranges and Python frames; nothing of torch or of CUDA.
"""
