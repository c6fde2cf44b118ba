"""What is ordered before what, and which bytes are touched without an order: pure Python.

Knows lanes (streams and host threads), vector clocks, byte ranges and findings about them. Knows
nothing of torch, of CUDA calls or of how anything is observed.
"""
