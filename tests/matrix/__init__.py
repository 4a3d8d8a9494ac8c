"""Every case over every path: recv, tf2 and faults, each proven by the bytes that its path counts.

A path joins by a line in paths.py, a case by a function in one of the cases_*.py.
"""
