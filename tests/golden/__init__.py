"""Comparison of the project's own functions with numbers recorded from the authors' code (commit 8d699b1).

`python -m tests.golden DIR` checks every `.npz` file of a folder and prints one line a file.
"""
