"""The SDK that scripts import, under Trainhall, `torchrun` or plain Python; imports `loop`.

`together`, `trainer` and `checkpoints` need torch, and are imported when they are needed.
"""
