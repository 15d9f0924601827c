"""The SDK that scripts import; under `torchrun` or plain Python they run as they are.

It imports `loop` and what that may; torch only where a line below says so.

api          the functions that users call, as `trainhall.init` and so on
session      this process's place: a rank of an attempt, or any process outside Trainhall
reporting    metrics on their way to the attempt's spool, or to the terminal
stopping     stop requests, for a rank by itself
together     the ranks as a group: joining, agreeing to stop                            needs torch
checkpoints  states that are restored after a pause, a crash or a resize             needs torch
"""
