"""Predictions: memory against what PyTorch tracks in real ranks, and what is chosen."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.cluster.attempts import RankServer
from support.storage.data_files import write_cifar10, write_text
from torch import nn

from trainhall.parallelism.declaration import Declaration
from trainhall.parallelism.degrees import StrategyName
from trainhall.parallelism.plan.devices import Rates, of_gpu
from trainhall.parallelism.plan.pipeline_trace import PipelineTracer
from trainhall.parallelism.plan.prediction import predict
from trainhall.parallelism.plan.trace import (
    Trace,
    TraceError,
    Tracing,
    fake_process_group,
    grows_evenly,
)
from trainhall.training.planning import planner as planning
from trainhall.training.planning.planner import (
    MOST_COPIES,
    Plan,
    arranged,
    document,
    mesh_text,
    plan,
    predicted_memory,
    subject_of,
    traced_of,
)
from trainhall.training.spec import JobSpec
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.plan import EXIT_REFUSED, PlanDevice, PlanPrediction, planner_input
from trainhall.training.spec.strategies import with_mesh
from trainhall.training.tasks.language_model import LanguageModel

NOT_TRIED = {
    ("resnet18", "tensor"),  # which that model cannot do
    # The others say as much.
    ("resnet18", "pipeline"),
    ("gpt", "pipeline"),
    ("resnet18", "model"),
    ("resnet18", "parameter_server"),
    ("mlp", "model"),
}
RATES = Rates("test", 1e12, 1e11, 1e10, 1e-5, "made up")


def task(model: str, folder: Path) -> dict[str, Any]:
    if model == "mlp":
        return {"name": "synthetic", "params": {"features": 256, "hidden": [512, 512, 512]}}
    if model == "deep mlp":
        return {"name": "synthetic", "params": {"features": 256, "hidden": [512] * 10}}
    if model == "resnet18":
        write_cifar10(folder)
        return {"name": "cifar10", "params": {"root": str(folder)}}
    return gpt(folder, layers=2)


def gpt(folder: Path, *, layers: int, width: int = 128, vocabulary: int = 1024) -> dict[str, Any]:
    write_text(folder / "text.txt", 20_000)
    return {
        "name": "language_model",
        "params": {
            "size": "tiny", "layers": layers, "width": width, "heads": 4,
            "vocabulary": vocabulary, "files": [str(folder / "text.txt")],
        },
    }  # fmt: skip


def job(
    work: dict[str, Any],
    strategy: str,
    workers: int = 2,
    batch: int = 16,
    *,
    recompute: bool = False,
) -> JobSpec:
    activation_checkpointing = "full" if recompute else "none"
    return validate_spec(
        {
            "name": "test",
            "task": work,
            "resources": {"workers": workers},
            "parallelism": {"strategy": strategy},
            "training": {
                "steps": 3, "global_batch_size": batch, "gradient_clip": 1.0,
                "activation_checkpointing": activation_checkpointing,
            },
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "strategy", "recompute"),
    [
        (model, strategy, False)
        for model in ("mlp", "resnet18", "gpt")
        for strategy in ("ddp", "fsdp", "tensor", "pipeline", "model", "parameter_server")
        if (model, strategy) not in NOT_TRIED
    ]
    + [("gpt", "fsdp", True)],
)
def test_planner_memory_is_within_10_percent(
    ranks: RankServer, tmp_path: Path, model: str, strategy: str, recompute: bool
) -> None:
    spec = job(task(model, tmp_path / "data"), strategy, recompute=recompute)
    document_ = spec.model_dump(mode="json", exclude_unset=True)
    folder = ranks.start(tmp_path / "run", document_, function="support.ranks.memory:measured")
    attempt = ranks.wait(folder)
    assert attempt.codes == [0, 0], attempt.stderr()
    peaks = [json.loads((folder.path / f"peak-{rank}.json").read_text()) for rank in range(2)]
    assert sum(predicted_memory(spec).values()) == pytest.approx(max(peaks), rel=0.1)


def test_half_precision_logits_are_not_copied_on_a_gpu() -> None:
    params = {"layers": 1, "heads": 1, "width": 8, "context": 64}
    spec = validate_spec(
        {
            "name": "test",
            "task": {"name": "language_model", "params": params},
            "training": {"steps": 1, "global_batch_size": 32, "precision": "bf16"},
        }
    )
    on_cpu, on_gpu = (sum(predicted_memory(spec, kind).values()) for kind in ("cpu", "cuda"))
    logits = 32 * 64 * 256 * 2
    assert on_cpu - on_gpu == pytest.approx(logits, rel=0.05)
    # Torch's own rules hold again.
    assert sum(predicted_memory(spec).values()) == on_cpu


@pytest.mark.parametrize(
    ("model", "workers", "parallelism", "training"),
    [
        ("gpt", 2, {"strategy": "pipeline", "microbatches": 8}, {}),
        ("gpt", 2, {"strategy": "pipeline", "schedule": "interleaved_1f1b"}, {}),
        ("gpt", 2, {"strategy": "pipeline", "schedule": "zbv"}, {}),
        pytest.param(
            "gpt",
            2,
            {"strategy": "pipeline", "schedule": "zbv", "microbatches": 8},
            {},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "gpt",
            2,
            {"strategy": "pipeline", "schedule": "interleaved_zero_bubble"},
            {},
            marks=pytest.mark.slow,
        ),
        ("gpt", 4, {"strategy": "pipeline", "tensor": 2, "sequence_parallel": True}, {}),
        ("mlp", 3, {"strategy": "ddp"}, {"reproducible": True, "global_batch_size": 24}),
        ("mlp", 1, {"strategy": "ddp"}, {"reproducible": True}),
        ("mlp", 3, {"strategy": "parameter_server", "servers": 2}, {}),
        # Gloo lets go of a layer some time after it was gathered: among ten that is not much.
        ("deep mlp", 2, {"strategy": "fsdp"}, {"precision": "fp16"}),
    ],
)
def test_planner_memory_of_special_cases_is_accurate(
    ranks: RankServer,
    tmp_path: Path,
    model: str,
    workers: int,
    parallelism: dict[str, Any],
    training: dict[str, Any],
) -> None:
    document_ = {
        "name": "test",
        "task": task(model, tmp_path / "data"),
        "resources": {"workers": workers},
        "parallelism": parallelism,
        "training": {"steps": 3, "global_batch_size": 16, "gradient_clip": 1.0, **training},
    }
    folder = ranks.start(tmp_path / "run", document_, function="support.ranks.memory:measured")
    attempt = ranks.wait(folder)
    assert attempt.codes == [0] * workers, attempt.stderr()
    peaks = [json.loads((folder.path / f"peak-{r}.json").read_text()) for r in range(workers)]
    predicted = sum(predicted_memory(validate_spec(document_)).values())
    assert predicted == pytest.approx(max(peaks), rel=0.1)


@pytest.mark.parametrize(
    ("hidden", "parallelism"),
    [
        ([512], {}),
        ([512, 384], {"microbatches": 8}),
        ([384, 512, 384], {}),  # cut between two splits
        ([512, 384, 512], {"schedule": "interleaved_1f1b"}),
        pytest.param([512, 384, 512], {"schedule": "zbv"}, marks=pytest.mark.slow),
    ],
)
def test_planner_passes_parts_between_stages(
    ranks: RankServer, tmp_path: Path, hidden: list[int], parallelism: dict[str, Any]
) -> None:
    document_ = {
        "name": "test",
        "task": {"name": "synthetic", "params": {"features": 16, "hidden": hidden}},
        "resources": {"workers": 4},
        "parallelism": {"strategy": "pipeline", "pipeline": 2, "tensor": 2, **parallelism},
        "training": {"steps": 3, "global_batch_size": 4096, "gradient_clip": 1.0},
    }
    folder = ranks.start(tmp_path / "run", document_, function="support.ranks.memory:measured")
    attempt = ranks.wait(folder)
    assert attempt.codes == [0] * 4, attempt.stderr()
    peaks, sent = (
        [json.loads((folder.path / f"{what}-{r}.json").read_text()) for r in range(4)]
        for what in ("peak", "sent")
    )
    spec = validate_spec(document_)
    with fake_process_group(4):
        traces = PipelineTracer(Tracing(subject_of(spec)), traced_of(spec)).traces()
    # The first two ranks hold the first stages, and each has as much to send as the other.
    assert [trace.sent["send"] for trace in traces for _ in range(2)] == sent
    predicted = sum(predicted_memory(spec).values())
    # Now and then Gloo lets go of what it reduced on one of two such ranks only after the next pass
    # has begun, which is a tenth of so small a stage.
    measured = max(min(peaks[:2]), min(peaks[2:]))
    assert predicted == pytest.approx(measured, rel=0.1)


HIDDEN = [[32], [64, 32], [64, 32, 16], [32] * 4, [32] * 7]


@pytest.mark.parametrize(
    ("hidden", "workers", "copies"),
    [
        (HIDDEN[0], 4, 1),
        # The deepest has the meshes of the others, and more; on 8 workers those on 4, and more.
        *(pytest.param(hidden, 4, 1, marks=pytest.mark.slow) for hidden in HIDDEN[1:]),
        *(pytest.param(hidden, 8, 1, marks=pytest.mark.slow) for hidden in HIDDEN[:-1]),
        # Shared with copies of the process, as on a node.
        pytest.param(HIDDEN[-1], 8, MOST_COPIES, marks=pytest.mark.processes),
    ],
)
def test_planner_covers_every_mesh_of_mlp(hidden: list[int], workers: int, copies: int) -> None:
    spec = job({"name": "digits", "params": {"hidden": hidden, "dropout": 0.2}}, "ddp", batch=64)
    made = plan(spec, workers, RATES, None, copies=copies)
    assert not [
        r.reason for r in made.refused if "divisible" not in r.reason and "stages" not in r.reason
    ]
    meshes = {(p.config.degrees.pipeline, p.config.degrees.tensor) for p in made.predictions}
    assert (2, 2) in meshes


@pytest.mark.parametrize("strategy", ["tensor", "pipeline"])
def test_planner_ignores_trials_of_operators(strategy: StrategyName) -> None:
    """What DTensor tries once, in the first step of a mesh, is held by no rank."""
    spec = job({"name": "digits", "params": {"hidden": [32, 32, 32]}}, strategy, 4, 64)
    if strategy == "pipeline":
        spec = with_mesh(spec, 4, strategy, {"data": 1, "pipeline": 2, "tensor": 2})
    with fake_process_group(4):
        tracing = Tracing(subject_of(spec))
        first, second = (predict(tracing, traced_of(spec), RATES) for _ in range(2))
    assert first == second
    made = plan(spec, 4, RATES, 1, own_strategy=True)
    assert (made.predictions, made.choice, made.refused) == ([first], first, [])


@pytest.mark.parametrize(
    ("workers", "vocabulary"),
    [
        # The layers weigh less in the other, but no error of theirs would be too small to show.
        pytest.param(2, 1024, marks=pytest.mark.slow),
        (4, 50_000),
    ],
)
def test_planner_extrapolates_deep_models(tmp_path: Path, workers: int, vocabulary: int) -> None:
    """Also where what is not repeated is larger than all that is."""
    spec = job(gpt(tmp_path, layers=8, width=32, vocabulary=vocabulary), "fsdp", workers)
    with fake_process_group(workers):
        tracing = Tracing(subject_of(spec))
        assert tracing.row is not None
        assert tracing.row.length == 8
        quick = tracing.step(traced_of(spec))
        tracing.row = None
        whole = tracing.step(traced_of(spec))
    assert quick.flops == whole.flops
    for phase, held in whole.peaks.items():
        assert quick.peaks[phase] == pytest.approx(held), phase
    assert quick.sent == pytest.approx(whole.sent, rel=0.01)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[JobSpec, Plan]:
    """A GPT of two layers on two workers, without a limit of memory."""
    spec = job(gpt(tmp_path_factory.mktemp("gpt"), layers=2), "ddp")
    return spec, plan(spec, 2, RATES, None)


def test_planner_models_activation_checkpointing(
    tmp_path: Path, planned: tuple[JobSpec, Plan]
) -> None:
    _, kept = planned
    again = plan(job(gpt(tmp_path, layers=2), "ddp", recompute=True), 2, RATES, None)
    before = {p.config.strategy: p for p in kept.predictions}
    assert len(again.predictions) == len(before) == 6
    for found in again.predictions:
        plain = before[found.config.strategy]
        assert found.flops > plain.flops
        if found.config.strategy not in ("parameter_server", "pipeline"):
            # There a server holds the most, or the rank that keeps all outputs.
            assert found.memory["activations"] < plain.memory["activations"]


def test_planner_chooses_quickest_fitting_mesh(planned: tuple[JobSpec, Plan]) -> None:
    spec, everything = planned
    peaks = {p.config.strategy: p.peak for p in everything.predictions}
    assert set(peaks) == {"ddp", "fsdp", "tensor", "pipeline", "model", "parameter_server"}
    limit = peaks["ddp"] - 1
    limited = arranged(
        everything.predictions, everything.refused, RATES, limit, everything.calibration
    )
    made = document(limited, spec)
    ddp = next(item for item in made["items"] if item["strategy"] == "ddp")
    assert (ddp["fits"], ddp["missing_bytes"]) == (False, 1)
    first = made["items"][0]
    assert first["fits"]
    assert made["choice"]["strategy"] == first["strategy"] != "ddp"
    assert json.loads(json.dumps(made)) == made


def test_where_nothing_fits_the_smallest_is_named() -> None:
    spec = job({"name": "digits"}, "ddp")
    made = plan(spec, 2, RATES, 1024)
    assert made.choice is None
    least = min(made.predictions, key=lambda p: p.peak)
    printed = document(made, spec)
    assert printed["choice"] is None
    assert printed["reason"].startswith(f"nothing fits: {mesh_text(least.config)} needs the least")


def test_planner_reports_unsupported_strategies() -> None:
    spec = job({"name": "support.tasks.own:Plain"}, "ddp")
    refused = {r.strategy: r.reason for r in plan(spec, 2, RATES, None).refused}
    assert "declares no layers that tensor parallelism can split" in refused["tensor"]


def test_planner_refuses_value_dependent_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Curious(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(nn.Embedding(1024, 8).weight.detach())

        def forward(self, tokens: Any) -> Any:
            logits = nn.functional.embedding(tokens, self.weight) @ self.weight.T
            return logits if logits.sum() > 0 else -logits

    monkeypatch.setattr(LanguageModel, "build_model", lambda _: Curious())
    monkeypatch.setattr(LanguageModel, "declaration", lambda _: Declaration())
    with pytest.raises(TraceError, match="DataDependentOutputException"):
        predicted_memory(job(gpt(tmp_path, layers=2), "ddp"))


def test_planner_skips_an_untraceable_mesh(tmp_path: Path) -> None:
    """Here only those strategies call the model as a whole that do not cut it into stages."""
    task_ = {"name": "support.tasks.own:LooksAtValues"}
    spec = job(task_, "ddp")
    made = plan(spec, 2, RATES, None)
    assert {p.config.strategy for p in made.predictions} == {"pipeline", "model"}
    reasons = {r.strategy: r.reason for r in made.refused}
    assert {"ddp", "fsdp", "parameter_server"} <= set(reasons)
    for strategy in ("ddp", "fsdp", "parameter_server"):
        reason = reasons[strategy]
        assert reason.startswith("cannot be planned: a step on tensors without values fails")
        assert "own.py, line " in reason
        assert "DataDependentOutputException: " in reason
    assert document(made, spec)["choice"]["strategy"] in ("pipeline", "model")


def test_planner_suppresses_torch_warnings(recwarn: pytest.WarningsRecorder) -> None:
    plan(job({"name": "digits"}, "ddp"), 2, RATES, None)
    assert not [w for w in recwarn if "torch" in Path(w.filename).parts]


@pytest.mark.processes
def test_planner_ignores_output_of_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task_ = "from trainhall.training.tasks.synthetic import Synthetic\n\nprint('loading')\n"
    (tmp_path / "talkative.py").write_text(task_)
    monkeypatch.syspath_prepend(tmp_path)
    spec = job({"name": "talkative:Synthetic"}, "ddp")
    device = PlanDevice(kind="cuda", name="NVIDIA H100 80GB HBM3")
    request = planner_input(spec, 2, code=None, device=device).decode()
    monkeypatch.setattr("sys.stdin", StringIO(request))
    assert planning.main() == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["chosen"] is not None
    assert "loading" in printed.err


@pytest.mark.processes
def test_the_line_that_needs_values_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "curious.py").write_text(
        "from trainhall.training.tasks.synthetic import Synthetic\n\n"
        "class Curious(Synthetic):\n"
        "    def loss(self, model, batch):\n"
        "        loss, outputs = super().loss(model, batch)\n"
        "        print(loss.item())\n"
        "        return loss, outputs\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = job({"name": "curious:Curious"}, "ddp")
    device = PlanDevice(kind="cuda", name="NVIDIA H100 80GB HBM3")
    request = planner_input(spec, 2, code=None, device=device).decode()
    monkeypatch.setattr("sys.stdin", StringIO(request))
    assert planning.main() == EXIT_REFUSED
    assert f"at {tmp_path / 'curious.py'}, line 6, in loss (" in capsys.readouterr().err


def test_a_plan_is_finite() -> None:
    with pytest.raises(ValidationError, match="finite"):
        PlanPrediction(peak_memory_bytes=1, memory={}, step_seconds=float("inf"))


def test_a_gpu_is_known_by_its_name() -> None:
    h100, l4 = of_gpu("NVIDIA H100 80GB HBM3", half=True), of_gpu("NVIDIA L4", half=False)
    assert h100 is not None
    assert l4 is not None
    assert h100.flops > l4.flops
    assert of_gpu("NVIDIA L40S", half=True) != of_gpu("NVIDIA L4", half=True)
    assert of_gpu("Voodoo 2", half=True) is None


def test_planner_does_not_extrapolate_different_peaks() -> None:
    def trace(start: dict[str, float], update: dict[str, float]) -> Trace:
        return Trace({"start": start, "update": update}, 0, {}, 0, 0)

    one = trace({"parameters": 3, "buffers": 5}, {"parameters": 3})
    assert grows_evenly(one, trace({"parameters": 4, "buffers": 5}, {"parameters": 4}))
    assert not grows_evenly(one, trace({"parameters": 10}, {"parameters": 4}))


def test_planner_handles_a_loss_calling_twice() -> None:
    made = plan(job({"name": "support.tasks.own:Contrasted"}, "ddp"), 2, RATES, None)
    strategies = {p.config.strategy for p in made.predictions}
    assert {"ddp", "fsdp"} <= strategies
    reasons = {r.strategy: r.reason for r in made.refused}
    for strategy in ("pipeline", "model"):
        assert strategy not in strategies
        assert "the loss calls the model more than once" in reasons[strategy]


def test_planner_handles_parameters_without_gradient() -> None:
    task = {"name": "support.tasks.own:LeftOut", "params": {"without": [0]}}
    made = plan(job(task, "ddp"), 2, RATES, None)
    reasons = {r.strategy: r.reason for r in made.refused}
    assert reasons["fsdp"].startswith("0.beside.weight, 0.beside.bias got no gradient")
    assert "tensor" in {p.config.strategy for p in made.predictions}


def test_planner_refuses_unrestorable_state(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = job({"name": "support.tasks.own:Counted"}, "ddp")
    request = planner_input(spec, 2, code=None, device=PlanDevice(kind="cpu", name="")).decode()
    monkeypatch.setattr("sys.stdin", StringIO(request))
    assert planning.main() == EXIT_REFUSED
    assert "`get_extra_state` of Counting" in capsys.readouterr().err
