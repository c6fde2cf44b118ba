# expect = "inconclusive"
# says = ["the program gave the device no work", "processes forked by the program"]
"""All work is left to a child that is another program."""

import os
import sys

pid = os.fork()
if pid == 0:
    os.execv(sys.executable, [sys.executable, "-c", "print('elsewhere')"])
os.waitpid(pid, 0)
