"""The coordinator and the agent: packages in the order in which they may import.

lifecycle, wire -> jobs, nodes -> checkpoints, experiments, snapshot -> gateway, scheduling ->
reconcile -> coordinator -> simulator. `agent` imports `wire`, the torch-free parts of `training`,
and no database.
"""
