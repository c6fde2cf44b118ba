"""What learning is worth: schedules that each way to draw scenarios needs until it notices seeded
faults and mutants.
"""
