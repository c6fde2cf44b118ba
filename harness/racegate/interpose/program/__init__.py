"""What stands between an unmodified PyTorch program and the virtual device.

Knows torch, its dispatcher and the native runtime; observes every operation and host access and
reports it to the recorder. Knows nothing of verdicts, files or command lines.
"""
