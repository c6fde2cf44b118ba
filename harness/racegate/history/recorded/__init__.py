"""What was recorded of a run of a program or a release, step by step."""
