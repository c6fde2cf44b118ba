"""What the device computes: CUDA operators and Triton kernels on CPU aliases of the same bytes.

Knows torch's dispatcher and schemas, and which bytes an operator touches.
"""
