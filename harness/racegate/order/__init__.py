"""What is ordered before what, and which bytes are touched without an order.

Knows lanes (streams and host threads), vector clocks, rows and byte ranges, and findings about
them. The definition is in Python (`clocks`, `rows`), which is all that the gate needs; what a
program does at every event is kept by its twin in C (`compiled`). Knows nothing of torch, of CUDA
calls or of how anything is observed.
"""
