"""Events that a rank reports."""

from typing import Any, Literal

from pydantic import Field

from trainhall.training.link.base import LinkModel


class RankEvent(LinkModel):
    """A rare event of a rank: the kinds below, with their own keys in `data`.

    packages     rank 0, when its process starts: a `training.link.packages.Packages`
    started      rank 0, before its first step: `{resumed_from?: step | null, total_steps, samples,
                 generation, since?, note?, passed_over?: [{name, reason, text}]}`; `since` is the
                 earliest generation in which a process of the group began, where they regroup in
                 place; `resumed_from` is missing for a script that loads no checkpoint through the
                 SDK; one that loads later reports it again, and the newest counts; `note` says why
                 an older checkpoint was taken, `passed_over` of each better one: `reason` is a code
                 of `training.checkpoint.format.errors.SkipReason`, `text` explains it
    stepped      rank 0, after the first step of a generation: `{generation, step, loaded}`;
                 `loaded` is when all ranks had their state, seconds since the epoch
    checkpoint   rank 0, committed: `{name, step, size, files: [{path, size, sha256}],
                 metrics: {…}}`
    failure      before the rank leaves with an exception: `{type, message, traceback, final?}`;
                 `final`: another attempt would fail in the same way
    asks         rank 0 of a script, when it first asks whether to stop: from then on all its ranks
                 do so after every step
    profile      a `training.link.profiling.messages.ProfileReport`
    gradients    rank 0, after a step whose gradients were captured: a
                 `training.link.gradient_record.GradientRecord`
    completed    rank 0, at the end: `{steps, metrics: {name: last value}, weights_sha256, seconds,
                 measured, network?, chain?}`; `chain` is the last link of a reproducible job
    paused       rank 0, after the checkpoint was committed: `{step, measured}`; `measured` is
                 `{peak_memory_bytes, step_seconds, steps}` of this attempt, or null
    network      rank 0, after the first step of a job with `gradient_sync.measure_links`: the
                 report of `training.loop.network_probe.measure`; the result has it too
    logged       of a host's tracking clients: `{parameters: {name: text}, tags: {name: text |
                 null}}`, which join those of before; null: the tag was deleted
    not_saved    a checkpoint could not be written, or not be uploaded; training continues:
                 `{step, message}`
    note         anything worth an event on the job: `{message}`
    """

    sequence: int
    time: float
    rank: int
    kind: Literal[
        "packages", "started", "stepped", "checkpoint", "failure", "completed", "paused",
        "gradients", "network", "not_saved", "note", "logged", "asks", "profile",
    ]  # fmt: skip
    data: dict[str, Any] = Field(default_factory=dict)
