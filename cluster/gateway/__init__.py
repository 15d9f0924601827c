"""The coordinator's end of the agents' connections; imports `checkpoints`, `jobs`, `lifecycle`,
`nodes`, `runs`, `snapshot` and `wire`.
"""
