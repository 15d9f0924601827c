"""Train a job at several learning rates and print the best by its main metric (`metric` in the
spec, else a validation metric). Jobs that do not fit wait in the queue.

python examples/sweep.py examples/digits.yaml 0.3 0.1 0.03
"""

import sys

import trainhall as th

spec, *rates = sys.argv[1:]

with th.Client() as client:
    jobs = {
        rate: client.submit(spec, {"name": f"sweep {rate}", "training.learning_rate": float(rate)})
        for rate in rates
    }
    reached = {}
    goal = min
    for rate, job in jobs.items():
        job = client.wait(job["id"])
        if job["state"] != "completed":
            print(f"{rate}: {job['state']}, {job['reason']}")
            continue
        metric = job["main_metric"]
        reached[rate] = float(metric["value"])
        goal = max if metric["goal"] == "max" else min
        print(f"{rate}: {metric['name']} {reached[rate]:.3f}")
    print("best:", goal(reached, key=reached.__getitem__, default="none completed"))
