"""The pytest plugin: scenarios and witnesses as tests. As all of `cli`: options and what they ask
for, no logic.
"""
