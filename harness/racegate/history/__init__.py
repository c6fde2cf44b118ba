"""History: runs as frozen data: what was asked for (schedule, edge), what was recorded (trace,
observe, run), what was found (finding, outcome, stats), and the file that keeps it (witness).

Adding a field with a default keeps old witnesses readable; changing what one means does not.
It knows scenarios. It must not know who made a run or who judges it: no device, engine or oracle.
"""

__version__ = "0.1.0"  # of racegate: whatever is written says by which it was; the distribution's
