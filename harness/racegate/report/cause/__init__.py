"""What a run's findings come from: one cause, its consequences, and what a user would see.

Read from what a run left behind; knows nothing of how it is shown.
"""
