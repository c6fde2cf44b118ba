"""A/B: thousands of generations with natural timing, engines with and without a fault. What is
compared (workload), a wave of it (waves), the folder of what is done, a call (running), the sums.

A wave is a file of its own; change what decides its tokens only with the folder's schema.
It knows the engine and the jobs' pool; it must not know oracles or holds but for the held run.
"""
