"""Devices: one protocol, and what both of them share: nodes and memory, the pending queues
(pending, chooser, stepped) that say what may happen, the recorder and its clocks, launches as data.

`virtual/` is the device on the CPU, `cuda/` the one on a GPU; nothing here imports them.
Change it with the litmus programs (tests/device): what a device may do is what they allow.
It knows history and the kernels' signatures, and must not know rows, requests' plans or counts.
"""
