"""What is made from the code for those who call it: the page of the Python API, and the schema of
scenario files. A test says when one is stale.
"""
