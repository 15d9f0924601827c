"""Decisions and how they are applied; imports `checkpoints`, `jobs`, `lifecycle`, `nodes`,
`scheduling` and `snapshot`.
"""
