"""What the other inner rooms share: plans, views of a step, mirrors of requests, sizes, buffers,
block pools, streams, edges, counters, and launches of kernels by parameter name.

A new buffer, edge, lane or counted thing begins here. Names of buffers, edges and lanes are public:
witnesses are recorded under them. Nothing here decides what a step does, and it knows no other
inner room.
"""
