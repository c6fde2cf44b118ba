"""What is made from the code for those who use it: the schema of scenario files, and the report of
a finding. A test says when the schema is stale.
"""
