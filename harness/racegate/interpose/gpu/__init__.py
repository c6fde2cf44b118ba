"""A real GPU: the program's own streams, recorded as on the virtual device, held back by latches.

The real CUDA runtime answers; a library in front of it tells what orders or touches memory. The
order, the bytes, the names and the reports are those of the virtual device.
"""
