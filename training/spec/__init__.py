"""The job spec, which coordinator, CLI and ranks share.

Free of torch; imports the declarations of `parallelism` alone.
"""

from trainhall.training.spec.document.errors import SpecError, SpecProblem
from trainhall.training.spec.job import JobSpec
from trainhall.training.spec.parse import MAX_SPEC_BYTES, parse_spec
from trainhall.training.spec.program import ScriptSpec, TaskSpec
from trainhall.training.spec.recovery import CheckpointSpec, RecoverySpec
from trainhall.training.spec.resources import Device, ResourcesSpec
from trainhall.training.spec.training import (
    GradientSync,
    LearningRateSchedule,
    NotPlannedError,
    ParallelismSpec,
    Precision,
    TrainingSpec,
)

__all__ = [
    "MAX_SPEC_BYTES",
    "CheckpointSpec",
    "Device",
    "GradientSync",
    "JobSpec",
    "LearningRateSchedule",
    "NotPlannedError",
    "ParallelismSpec",
    "Precision",
    "RecoverySpec",
    "ResourcesSpec",
    "ScriptSpec",
    "SpecError",
    "SpecProblem",
    "TaskSpec",
    "TrainingSpec",
    "parse_spec",
]
