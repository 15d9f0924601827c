"""Decisions and how they are applied; imports `checkpoints`, `experiments`, `jobs`, `lifecycle`,
`nodes`, `scheduling` and `snapshot`.
"""
