# expect = "conflict"
# says = ["19 conflicts", "in readv", "in recvmsg_into", "in sendmsg", "in vmsplice", "in fread"]
"""The kernel moves bytes that the device may be writing."""

from shared.every_call import run

run(0)
