"""What ranks do together: operations that meet, who waits for whom, and what is wrong in it.

Knows no process: messages go in, messages come out.
"""
