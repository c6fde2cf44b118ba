"""What Triton's interpreter lacks or does slowly: a driver, NVIDIA's functions, reductions.

Knows Triton and torch; nothing of streams and order.
"""
