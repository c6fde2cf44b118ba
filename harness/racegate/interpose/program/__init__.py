"""What is put around an unmodified program: its host accesses, threads, names and observations.

Knows torch's Python side; installs everything. Knows nothing of verdicts, files or command lines.
"""
