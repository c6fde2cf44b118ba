"""The CUDA device: the same pending queues, on real streams, with holds as latches.

Here: the device (what the work is), streams (when it runs: latches, backlog, watchdog, pacing), the
driver's protocol and its one implementation on torch and cuda.bindings (torch), sites for runs.
Only torch.py touches CUDA; everything else is tested on a driver without a GPU.
It must not know the engine, and imports torch only where a GPU is opened.
"""
