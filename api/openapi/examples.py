"""Examples of the OpenAPI document. A test checks each against its schema."""

from typing import Any

from trainhall.cluster.jobs.commands import Command, refused_commands
from trainhall.db.models import Job

Example = dict[str, Any]

SPEC: Example = {
    "name": "digits",
    "task": {"name": "digits", "params": {"hidden": [64]}},
    "resources": {"workers": 2},
    "training": {"steps": 500, "global_batch_size": 64, "learning_rate": 0.001},
    "checkpoint": {"every_steps": 100},
}
SPEC_YAML = """\
name: digits
task:
  name: digits
resources:
  workers: 2
training:
  steps: 500
checkpoint:
  every_steps: 100
"""
CODE: Example = {
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "size": 40960,
}


def _commands(state: str) -> Example:
    refused = refused_commands(Job(state=state, spec=SPEC))
    return {
        "allowed_commands": [command for command in Command if command not in refused],
        "refused_commands": refused,
    }


JOB: Example = {
    "id": "3f2a9c51d07b",
    "name": "digits",
    "state": "running",
    "reason": "2 ranks on gpu-07",
    "reason_code": "running",
    "attempt": 1,
    "generation": 1,
    "step": 120,
    "total_steps": 500,
    "world_size": 2,
    "priority": 0,
    "created_at": "2026-01-05T09:30:00.000000Z",
    "started_at": "2026-01-05T09:30:00.210000Z",
    "finished_at": None,
    "ran_seconds": 0.0,
    "running_since": "2026-01-05T09:30:00.210000Z",
    "spec": SPEC,
    "metrics": {"loss": 0.412, "samples_per_second": 51200.0},
    "main_metric": {"name": "loss", "value": 0.412, "goal": "min"},
    **_commands("running"),
    "straggler": None,
    "warnings": [],
    "plan": None,
}
QUEUED: Example = JOB | {
    "state": "queued",
    "reason": "submitted",
    "reason_code": "submitted",
    "attempt": 0,
    "generation": 0,
    "step": 0,
    "total_steps": None,
    "started_at": None,
    "running_since": None,
    "metrics": {},
    "main_metric": None,
    **_commands("queued"),
}
PAUSING: Example = JOB | {
    "state": "pausing",
    "reason": "pause requested by a user",
    "reason_code": "pause_requested",
    **_commands("pausing"),
}
RESUMED: Example = JOB | {
    "state": "queued",
    "reason": "resumed by a user",
    "reason_code": "resumed",
    "ran_seconds": 8.5,
    "running_since": None,
    **_commands("queued"),
}
CANCELLING: Example = JOB | {
    "state": "cancelling",
    "reason": "cancellation requested by a user",
    "reason_code": "cancel_requested",
    **_commands("cancelling"),
}
RESIZED: Example = JOB | {
    "reason": "resize requested by a user: 4 workers instead of 2 workers; it keeps 2 until it can "
    "change",
    "reason_code": "resize_requested",
}
RESTORED: Example = RESUMED | {
    "reason": "a user restores the checkpoint of step 400",
    "reason_code": "restored",
}
DRY_RUN: Example = {
    "name": "digits",
    "world_size": 2,
    "priority": 0,
    "spec": SPEC,
    "lacks_code": False,
    "shortage": None,
    "outlook": {
        "when": "later",
        "position": 3,
        "expected_at": "2026-01-05T14:20:00.000000Z",
        "reason": "needs 2 CPU slots; waiting for “tune” (77c0de15f00d, 4 CPU slots), ahead in "
        "the queue; expected at 14:20 UTC",
    },
}
GRADIENT_REQUESTS: Example = {"asked": 1, "answered": 0}
_GRADIENT_STEP: Example = {
    "attempt": 1,
    "step": 40,
    "time": "2026-01-05T09:30:00.210000Z",
    "request": 1,
    "has_histograms": True,
    "norms": [0.41, 0.02],
    "largest": [0.63, 0.05],
}
GRADIENT_HISTORY: Example = {
    "asked": 1,
    "answered": 1,
    "names": ["0.weight", "0.bias"],
    "remarks": [None, None],
    "steps": [_GRADIENT_STEP],
}
GRADIENTS: Example = {
    "attempt": 1,
    "step": 40,
    "time": "2026-01-05T09:30:00.210000Z",
    "lowest_exponent": -48,
    "entries": [
        {
            "name": "0.bias",
            "norm": 0.02,
            "largest": 0.05,
            "histogram": {"first": 38, "counts": [3, 9, 4], "zeros": 0, "not_finite": 0},
        }
    ],
}
EVENT: Example = {
    "seq": 7,
    "time": "2026-01-05T09:30:00.210000Z",
    "kind": "state",
    "code": "running",
    "reason": "2 ranks on gpu-07",
    "attempt": 1,
    "data": {"state": "running"},
}
LOG_LINE: Example = {
    "attempt": 1,
    "rank": 0,
    "stream": "stdout",
    "offset": 2048,
    "time": "2026-01-05T09:30:01.000000Z",
    "text": "step 120: loss 0.412",
    "void": False,
}
FAILURE: Example = {
    "rank": 1,
    "exit_code": None,
    "signal": 9,
    "message": "rank 1 was ended by SIGKILL",
    "log_tail": "",
    "cause": "killed",
    "evidence": "SIGKILL from outside",
    "node": "gpu-07",
    "step": 132,
}
ALLOCATION: list[Example] = [
    {
        "node_id": "9b1d44e0c2aa",
        "node_name": "gpu-07",
        "node_rank": 0,
        "ranks": [
            {"rank": 0, "local_rank": 0, "device_kind": "cuda", "device_index": 0},
            {"rank": 1, "local_rank": 1, "device_kind": "cuda", "device_index": 1},
        ],
    }
]
ATTEMPT: Example = {
    "attempt": 1,
    "generation": 1,
    "state": "failed",
    "reason": "rank 1 was ended by SIGKILL",
    "reason_code": "failed",
    "world_size": 2,
    "allocation": ALLOCATION,
    "generations": [
        {
            "generation": 1,
            "time": "2026-01-05T09:30:00.050000Z",
            "reason": "placed on 2 GPUs of gpu-07",
            "world_size": 2,
            "allocation": ALLOCATION,
            "failure": None,
        }
    ],
    "started_at": "2026-01-05T09:30:00.050000Z",
    "finished_at": "2026-01-05T09:31:00.000000Z",
    "failure": FAILURE,
    "timeline": [
        {
            "generation": 1,
            "failure": FAILURE,
            "done": "attempt 2 took its place",
            "happened_at": "2026-01-05T09:30:59.800000Z",
            "detected_at": "2026-01-05T09:30:59.900000Z",
            "regrouped_at": "2026-01-05T09:31:00.100000Z",
            "loaded_at": "2026-01-05T09:31:00.900000Z",
            "stepped_at": "2026-01-05T09:31:01.100000Z",
            "steps_redone": 12,
            "detect_seconds": 0.1,
            "regroup_seconds": 0.2,
            "load_seconds": 0.8,
            "step_seconds": 0.2,
            "total_seconds": 1.3,
        }
    ],
}
DEVICE: Example = {
    "node_id": "9b1d44e0c2aa",
    "index": 0,
    "kind": "cuda",
    "name": "NVIDIA H100 80GB HBM3",
    "memory_total": 85520809984,
    "memory_used": 21474836480,
    "utilization": 97.0,
    "temperature": 61.0,
    "power": 640.5,
    "job_id": "3f2a9c51d07b",
    "job_name": "digits",
    "gone": False,
}
NODE: Example = {
    "id": "9b1d44e0c2aa",
    "name": "gpu-07",
    "state": "ready",
    "reason": "its agent reports",
    "reason_code": "reports",
    "state_at": "2026-01-05T08:00:00.000000Z",
    "drain_reason": None,
    "agent_version": "0.1.0",
    "last_seen_at": "2026-01-05T09:31:00.000000Z",
    "labels": {"rack": "b"},
    "devices": [DEVICE],
    "address": "10.0.0.7",
    "host": {
        "cpu": 12.5,
        "memory_used": 34359738368,
        "memory_total": 1099511627776,
        "disk_used": 107374182400,
        "disk_total": 1920383410176,
    },
}
DRAINING_NODE: Example = NODE | {
    "state": "draining",
    "reason": "new disk on Friday: its jobs save and move",
    "reason_code": "draining",
    "drain_reason": "new disk on Friday",
}
NODE_EVENTS: Example = {
    "items": [
        {
            "time": "2026-01-05T08:00:00.000000Z",
            "state": "ready",
            "reason": "its agent reports",
        },
        {
            "time": "2026-01-05T09:30:00.000000Z",
            "state": "suspect",
            "reason": "unreachable; no heartbeat for 15 s; it gets no new work",
        },
    ]
}
NEW_NODE: Example = {"name": "gpu-07", "labels": {"rack": "b"}}
NODE_HISTORY: Example = {
    "items": [
        {
            "index": 0,
            "points": [
                {
                    "time": "2026-01-05T09:30:00.000000Z",
                    "utilization": 93.5,
                    "memory_used": 61203283968,
                    "temperature": 64.0,
                    "power": 612.0,
                }
            ],
        }
    ]
}
ANNOUNCED: Example = {
    "id": "9b1d44e0c2aa",
    "name": "gpu-07",
    "join_token": "kq1vA2yJ0Jm0m3V8gW3v8Yd8bq0i0p7Qb1n5oE2cW9s",
    "command": (
        "trainhall agent --coordinator http://lab:8000 "
        "--token kq1vA2yJ0Jm0m3V8gW3v8Yd8bq0i0p7Qb1n5oE2cW9s"
    ),
    "note": None,
    "expires_at": "2026-01-06T09:30:00.000000Z",
}
QUEUE_ENTRY: Example = {
    "job_id": "77c0de15f00d",
    "position": 1,
    "name": "gpt",
    "priority": 0,
    "queued_at": "2026-01-05T09:30:00.000000Z",
    "reason": "needs 8 GPUs on one host; node-b has 6 of 8 free, “digits” (3f2a9c51d07b) holds 2; "
    "expected at 14:20 UTC",
    "reason_code": "waiting_for_devices",
    "needs": {"device": "cuda", "count": 8},
    "earliest_start": "2026-01-05T14:20:00.000000Z",
    "can_start": True,
}
QUOTA: Example = {"kind": "user", "name": "ada", "limit": 8, "used": 7, "waiting": 2}
HEALTH: Example = {"status": "ok", "version": "0.1.0", "simulated": False}
SUMMARY: Example = {
    "nodes": 2,
    "devices": 16,
    "devices_busy": 14,
    "jobs": {"running": 3, "queued": 1, "completed": 42},
    "utilization": 88.5,
    "memory_used": 751619276800,
    "memory_total": 1368332959744,
    "power": 8120.0,
}
METRICS: Example = {
    "series": [
        {
            "name": "loss",
            "rank": None,
            "points": [
                {
                    "step": 64,
                    "time": "2026-01-05T09:30:00.700000Z",
                    "value": 0.71,
                    "min": 0.69,
                    "max": 2.31,
                },
                {
                    "step": 120,
                    "time": "2026-01-05T09:30:01.000000Z",
                    "value": 0.412,
                    "min": 0.401,
                    "max": 0.72,
                },
            ],
        }
    ]
}
CHECKPOINT: Example = {
    "id": "5e60b7d2f913",
    "job_id": "3f2a9c51d07b",
    "attempt": 1,
    "step": 100,
    "created_at": "2026-01-05T09:30:00.900000Z",
    "size": 187264,
    "state": "committed",
    "pinned": False,
    "metrics": {"loss": 0.44, "eval_accuracy": 0.93},
    "location": "checkpoints/3f2a9c51d07b/step-00000100-a1-g1",
}
VERIFIED: Example = {"good": True, "problems": []}
PINNED: Example = CHECKPOINT | {"pinned": True}
CHANGES: Example = {"parallelism": {"strategy": "fsdp"}, "resources": {"workers": 4}}
RETENTION: Example = {
    "items": [
        {
            "checkpoint": CHECKPOINT | {"step": 200},
            "keep": True,
            "reason": "the newest, one of the 2 best by eval_loss (0.41)",
        },
        {
            "checkpoint": CHECKPOINT,
            "keep": False,
            "reason": "not the newest, nor one of the 2 best by eval_loss",
        },
    ]
}
CHECKPOINT_FILES: Example = {
    "items": [
        {
            "path": "tensors-00000-00000.safetensors",
            "size": 186112,
            "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        },
        {
            "path": "manifest.json",
            "size": 1152,
            "sha256": "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752",
        },
    ]
}


def page(*items: Example, next_cursor: str | None = None) -> Example:
    return {"items": list(items), "next_cursor": next_cursor}
