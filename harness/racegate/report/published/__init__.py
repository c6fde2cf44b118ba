"""What is made from the code for those who call it: the pages of the Python API and of JSON, and
the schema of scenario files. A test says when one is stale.
"""
