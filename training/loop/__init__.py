"""The training loop of a rank, with what is measured and saved.

It imports every room but `elastic`, `planning`, `sdk` and `verify`.
"""
