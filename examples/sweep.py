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
        if job["state"] != "completed":  # as where the loss is no number any more
            print(f"{rate}: {job['state']}, {job['reason']}")
            continue
        losses = hall.curve(job["id"], "loss")
        reached[rate] = losses[-1][1]
        print(f"{rate}: {len(losses)} steps, loss {reached[rate]:.3f}")
    print("best:", min(reached, key=reached.__getitem__, default="none was completed"))
