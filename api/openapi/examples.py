"""Examples of the OpenAPI document: those of responses are made of their schemas."""

from typing import Any

from trainhall.cluster.lifecycle.reasons import experiment_label, job_label

SPEC: dict[str, Any] = {
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
SWEEP: dict[str, Any] = {
    "name": "learning rates",
    "kind": "sweep",
    "job": SPEC,
    "space": {"training.learning_rate": {"log": [0.0001, 0.1]}, "task.params.hidden": [[32], [64]]},
    "method": "random",
    "objective": {"metric": "eval_accuracy", "goal": "max"},
    "trials": 8,
}
SWEEP_YAML = """\
name: learning rates
kind: sweep
job:
  name: digits
  task: {name: digits}
  training: {steps: 500}
space:
  training.learning_rate: {log: [0.0001, 0.1]}
method: random
objective: {metric: eval_accuracy, goal: max}
trials: 8
"""
CHANGES = {"parallelism": {"strategy": "fsdp"}, "resources": {"workers": 4}}
SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
JOB = job_label("3f2a9c51d07b", "digits")
EXPERIMENT = experiment_label("7c0d93be12f4", "learning rates")
_TIME = "2026-01-05T09:30:00.210000Z"
_TEXTS = {
    "id": "5e60b7d2f913",
    "job_id": "3f2a9c51d07b",
    "job_name": "digits",
    "node_id": "9b1d44e0c2aa",
    "node": "gpu-07",
    "node_name": "gpu-07",
    "name": "digits",
    "address": "10.0.0.7",
    "agent_version": "0.1.0",
    "version": "0.1.0",
    "status": "ok",
    "state": "ready",
    "reason": "2 ranks on gpu-07",
    "reason_code": "running",
    "kind": "state",
    "code": "running",
    "text": "step 120: loss 0.412",
    "message": "rank 1 was ended by SIGKILL",
    "evidence": "SIGKILL from outside",
    "log_tail": "",
    "done": "attempt 2 replaced it",
    "summary": "fsdp (shard 4)",
    "device": "NVIDIA H100 80GB HBM3",
    "device_kind": "cuda",
    "location": "checkpoints/3f2a9c51d07b/step-00000100-a1-g1",
    "path": "manifest.json",
    "sha256": SHA256,
    "commit": "5c8d1f0e2b7a4936a1d0c2b3e4f5061728394a5b",
    "tags": "baseline",
    "notes": "*The best* so far",
    "user": "maria",
    "member": "group:vision-lab",
    "paths": "/data/vision",
    "scopes": "metrics",
    "how": "session",
    "token": "th_kq1vA2yJ0Jm0m3V8gW3v8Yd8bq0i0p7Qb1n5oE2cW9s0f6b1e2d",
    "client": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "join_token": "thj_kq1vA2yJ0Jm0m3V8gW3v8Yd8bq0i0p7Qb1n5oE2cW9s",
    "command": "TRAINHALL_JOIN_TOKEN=thj_kq1vA2yJ0Jm0… trainhall agent --coordinator http://lab:8000",
    "condition": "job.failed",
    "alert_name": "failed jobs of vision",
    "url": "https://example.org/hook",
    "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "currency": "EUR",
    "python": "3.12.11",
    "os": "Ubuntu 24.04.3 LTS, kernel 6.8.0-85-generic x86_64",
    "cuda": "12.6",
    "driver": "560.35.03",
    "host": "gpu-07",
    "branch": "main",
    "remote": "https://example.org/lab/vision.git",
    "diff": "-lr = 0.1\n+lr = 0.2",
    "next_cursor": "eyJzIjo3fQ",
}
_NUMBERS = {
    "step": 120,
    "total_steps": 500,
    "world_size": 2,
    "workers": 2,
    "size": 187264,
    "memory_total": 85520809984,
    "memory_used": 21474836480,
    "utilization": 97.0,
    "temperature": 61.0,
    "power": 640.5,
    "value": 0.412,
    "device_hours": 42.5,
    "gpu_hours": 42.5,
    "useful_hours": 36.1,
    "data_hours": 1.2,
    "redone_hours": 2.9,
    "idle_hours": 2.3,
    "energy_kwh": 24.8,
    "metered_hours": 42.1,
    "cost": 89.25,
}
_OBJECTS = {
    "spec": SPEC,
    "parallelism": {"strategy": "fsdp"},
    "metrics": {"loss": 0.412},
    "labels": {"rack": "b"},
    "command": ["trainhall", "submit", "job.yaml"],
    "packages": {"numpy": "2.3.3", "torch": "2.12.0+cu126"},
    "jobs": {"running": 3, "queued": 1},
    "values": {"training.learning_rate": 0.01},
    "counts": {"completed": 3, "running": 1, "pending": 4},
    "memory": {"parameters": 4294967296, "activations": 8589934592},
    "mesh": {"data": 1, "pipeline": 1, "shard": 2, "tensor": 1, "servers": 0},
    "Command": {"resume": "It is running; only a paused job can be resumed."},
}


def example(schema: dict[str, Any], schemas: dict[str, Any], name: str = "") -> Any:
    """Return a value of a schema.

    Args:
        schemas: schemas by name, for references.
        name: name of the field that has the value.
    """
    if reference := schema.get("$ref"):
        return example(schemas[reference.rpartition("/")[2]], schemas, name)
    if values := schema.get("enum"):
        return values[0]
    if choices := schema.get("anyOf"):
        # Null where nothing better is known than a type.
        known = [example(choice, schemas, name) for choice in choices]
        return next((value for value in known if value not in (0, "")), None)
    return _of_type(schema, schemas, name)


def _of_type(schema: dict[str, Any], schemas: dict[str, Any], name: str) -> Any:
    match schema.get("type"):
        case "object":
            if properties := schema.get("properties"):
                return {key: example(of, schemas, key) for key, of in properties.items()}
            keys = schema.get("propertyNames", {}).get("$ref", name)
            return _OBJECTS.get(keys.rpartition("/")[2], {})
        case "array":
            return [example(schema["items"], schemas, name)]
        case "string":
            return _TIME if schema.get("format") == "date-time" else _TEXTS.get(name, "")
        case "integer" | "number":
            return _NUMBERS.get(name, int("exclusiveMinimum" in schema))
        case "boolean":
            return False
    return None


def add_examples(document: dict[str, Any]) -> None:
    """Give every successful JSON response an example."""
    for methods in document["paths"].values():
        for operation in methods.values():
            for response in operation["responses"].values():
                content = response.get("content", {}).get("application/json")
                if content is not None:
                    content["example"] = example(
                        content["schema"], document["components"]["schemas"]
                    )
