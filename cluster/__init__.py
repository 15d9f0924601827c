"""The coordinator's mind and the agent's body: packages in the order in which they may import.

lifecycle, wire -> jobs, nodes -> checkpoints, snapshot -> gateway, scheduling -> reconcile ->
coordinator -> simulator. `agent` imports `wire` and the torch-free parts of `training` alone.
"""
