"""The batch in slots: a request keeps one place on the device while it runs, the host tells the
device what changed and not what is, and rows are laid out anew in every step.

Change here slots, staged writes, and the pinned pool that kernels read while the host runs ahead.
What is in a slot belongs to its request until the slot is taken again; nothing moves. It must not
know why requests are scheduled, nor the inside of the rooms below; the runner is that of `rows`.
"""
