"""Train a job at several learning rates, and tell which was best. What does not fit waits its turn.

python examples/sweep.py examples/digits.yaml 0.3 0.1 0.03
"""

import sys

import trainhall as th

spec, *rates = sys.argv[1:]

with th.Client() as hall:
    jobs = {
        rate: hall.submit(spec, {"name": f"sweep {rate}", "training.learning_rate": float(rate)})
        for rate in rates
    }
    reached = {}
    for rate, job in jobs.items():
        job = hall.wait(job["id"])
        losses = hall.curve(job["id"], "loss")
        print(f"{rate}: {job['state']}, {len(losses)} steps, loss {losses[-1][1]:.3f}")
        reached[rate] = losses[-1][1]
    print("best:", min(reached, key=reached.__getitem__))
