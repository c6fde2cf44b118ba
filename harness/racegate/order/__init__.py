"""What is ordered before what, and which bytes are touched without an order.

Knows lanes (streams and host threads), vector clocks, byte ranges and findings about them; what
every event touches is kept by `native/order.c`. Knows nothing of torch, of CUDA calls or of how
anything is observed.
"""
