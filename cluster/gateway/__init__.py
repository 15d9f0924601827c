"""The coordinator's end of the agents' connections; imports `checkpoints`, `jobs`, `lifecycle`,
`nodes`, `profiles`, `runs`, `snapshot` and `wire`.
"""
