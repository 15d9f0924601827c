"""The value that rates a run, and the reason for a missing one."""

import random
from datetime import UTC, datetime

import pytest

from trainhall.cluster.experiments.means import mean_of_repeats
from trainhall.cluster.experiments.rating import best_trials, missing_objective
from trainhall.db.database import Database
from trainhall.db.experiments import Experiment, Trial


@pytest.mark.parametrize(
    ("metric", "reported", "expected"),
    [
        ("loss", {}, "it reports no metric"),
        ("loss", {"loss": "NaN"}, "loss has no finite value"),
        ("los", {"loss": 1, "lr": 2}, "did you mean loss? The job reports loss, lr, not los"),
        ("val/f1", {"loss": 1, "val/accuracy": 1},
         "did you mean val/accuracy? The job reports loss, val/accuracy, not val/f1"),
        ("val/f1", {"val/accuracy": 1, "val/precision": 1},
         "it reports val/accuracy, val/precision, not val/f1"),
    ],
)  # fmt: skip
def test_missing_objective_lists_what_is_reported(
    metric: str, reported: dict[str, object], expected: str
) -> None:
    assert missing_objective(metric, reported) == expected


@pytest.mark.parametrize("goal", ["min", "max"])
@pytest.mark.parametrize("repeats", [1, 3])
async def test_best_trial_has_the_best_mean(database: Database, goal: str, repeats: int) -> None:
    chance = random.Random(repeats)
    # Few different values, whose sums differ in their last digit by the order.
    objectives = {
        (number, repeat): None if chance.random() < 0.1 else chance.choice([0.1, 0.2, 0.3, 0.7])
        for number in range(1, 61)
        for repeat in range(1, repeats + 1)
    }
    experiment = Experiment(
        id="e", number=1, name="x", kind="sweep", spec={"repeats": repeats}, state="running",
        reason="", reason_code="", metric="loss", goal=goal, objective_at="last", parallel=1,
        created_at=datetime.now(UTC),
    )  # fmt: skip
    rows = [
        Trial(
            experiment_id="e", number=number, repeat=repeat, values={"a": number},
            position=number, state="completed", objective=objective,
        )
        for (number, repeat), objective in objectives.items()
    ]  # fmt: skip
    async with database.transaction() as session:
        session.add(experiment)
        await session.flush()
        session.add_all(rows)
    means = {}
    for number in range(1, 61):
        values = [objectives[number, repeat] for repeat in range(1, repeats + 1)]
        known = [value for value in values if value is not None]
        if len(known) == repeats:
            means[number] = mean_of_repeats(known)
    best = (min if goal == "min" else max)(means, key=lambda number: means[number])
    async with database.session() as session:
        found = (await best_trials(session, [experiment]))["e"]
    assert (found.trial, found.value, found.values) == (best, means[best], {"a": best})
    ties = [number for number in means if means[number] == means[best] and number != best]
    assert set(found.ties) <= set(ties)
    assert repeats > 1 or list(found.ties) == ties[:2]


@pytest.mark.parametrize(("goal", "best"), [("min", (2, 0.45, 20)), ("max", (3, 0.7, 20))])
async def test_best_so_far_is_that_of_the_highest_rung(
    database: Database, goal: str, best: tuple[int, float, int]
) -> None:
    asha = {"min_steps": 10, "max_steps": 40, "factor": 2}
    experiment = Experiment(
        id="e", number=1, name="x", kind="sweep", state="running", reason="", reason_code="",
        spec={"repeats": 2, "early_stopping": {"asha": asha}}, metric="loss", goal=goal,
        objective_at="last", parallel=1, created_at=datetime.now(UTC),
    )  # fmt: skip
    results: dict[int, list[tuple[str, list[float | None]]]] = {
        1: [("waiting", [0.1]), ("started", [0.1, 0.1])],
        2: [("waiting", [0.9, 0.5]), ("waiting", [0.9, 0.4])],
        3: [("started", [0.2, 0.6]), ("waiting", [0.2, 0.8])],
        4: [("waiting", [0.1, 0.0]), ("failed", [0.1, 0.0])],
        5: [("waiting", [0.1, 9.0]), ("waiting", [0.1, None])],
        6: [("stopped", [0.1, 0.0]), ("stopped", [0.1, 0.0])],
    }
    rows = [
        Trial(
            experiment_id="e", number=number, repeat=repeat, values={"a": number},
            position=number, state=state, objective=found[-1], results=found,
        )
        for number, repeats in results.items()
        for repeat, (state, found) in enumerate(repeats, 1)
    ]  # fmt: skip
    async with database.transaction() as session:
        session.add(experiment)
        await session.flush()
        session.add_all(rows)
    async with database.session() as session:
        found = (await best_trials(session, [experiment]))["e"]
    assert (found.trial, found.value, found.step) == best
