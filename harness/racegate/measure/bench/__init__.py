"""Benchmarks: schedules per second of the virtual device, and on CUDA the kernels, the engine, and
what recording and holding cost there.

A figure is a median of rounds with how it was made; what it is compared with is said in its detail.
It knows devices, the engine and checks; nothing may know it but the command line.
"""
