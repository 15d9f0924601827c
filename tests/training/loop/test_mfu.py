"""Model FLOP utilisation: counted operations over the time of a step and the devices' peak."""

from pathlib import Path

import pytest
import torch
from support.cluster.regroup import elastic
from torch import Tensor, nn

from trainhall.parallelism.sheets import peak_flops
from trainhall.training.common.step_clock import HostClock
from trainhall.training.data.batch_reader import Reader
from trainhall.training.link.launch import Command
from trainhall.training.link.spool import EventSpool, MetricSpool
from trainhall.training.loop.metrics_recorder import Recorder
from trainhall.training.loop.mfu import Utilization, peak_of, utilization_of
from trainhall.training.spec import Precision
from trainhall.training.sync.rank0_log import Rank0Log
from trainhall.training.sync.step_sync import SyncResult
from trainhall.training.tasks.base import Task, TensorData


class Linear(Task):
    def __init__(self) -> None:
        self.train_data = TensorData(torch.randn(8, 10), torch.randn(8, 5))

    def build_model(self) -> nn.Module:
        return nn.Linear(10, 5)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[()]]:
        return nn.functional.mse_loss(model(batch[0]), batch[1]), ()


class Peeking(Linear):
    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[()]]:
        loss, none = super().loss(model, batch)
        return (loss if loss.item() > 0 else -loss), none


def counted(task: Task, device: str = "cpu") -> Utilization | None:
    reader = Reader(task, task.train_data, 0)
    model = task.build_model().to(device)
    return utilization_of(task, model, reader, samples=2, batch=64, peak=1e6, devices=4)


def test_a_step_is_counted_once_over_all_devices() -> None:
    found = counted(Linear())
    # Forward and the weight's gradient, two operations for each product; the input needs none.
    assert found == Utilization(flops=64 * 2 * (2 * 10 * 5), peak=1e6, devices=4)
    assert found.percent(0.01) == pytest.approx(100 * 12_800 / 0.01 / 4e6)
    assert found.percent(0.0) == 0.0


def test_mfu_counts_a_model_on_device() -> None:
    """Ranks that regroup in place bring it there first; `meta` is a device as well."""
    assert counted(Linear(), device="meta") == counted(Linear())


@pytest.mark.processes
def test_mfu_is_reported_after_regroup(tmp_path: Path) -> None:
    with elastic(tmp_path) as start:
        run = start(
            {
                "task": {"name": "support.tasks.peak:PeakTask"},
                "training": {"steps": 10**6, "global_batch_size": 8},
            },
            2,
        )
        run.reach(10)
        run.kill(1)
        run.wait_for_failed_ranks(1)
        run.regroup([0])
        alone_from = run.step + 1
        run.reach(alone_from + 10)
        run.send_command(Command.PAUSE)
        assert run.wait().outcome == "paused"
        reported = run.job_wide("model_flops_utilization").keys()
        assert reported == run.job_wide("loss").keys()
        assert {1, alone_from, alone_from + 10} <= reported


def test_mfu_is_omitted_for_untraceable_models() -> None:
    assert counted(Peeking()) is None


def test_mfu_peaks_match_torchs_device_names() -> None:
    assert peak_flops("NVIDIA H200", half=True) == 989e12
    assert peak_flops("NVIDIA H100 PCIe", half=True) == 756e12
    assert peak_flops("NVIDIA A100-SXM4-80GB", half=False) == 19.5e12
    assert peak_flops("NVIDIA L40S", half=True) == 362e12
    assert peak_flops("NVIDIA GeForce GTX 1080", half=True) is None
    assert peak_of(torch.device("cpu"), Precision.BF16) is None


def test_mfu_is_recorded_with_each_step(tmp_path: Path) -> None:
    clock, spool = HostClock(), MetricSpool(tmp_path / "metrics")
    recorder = Recorder(
        rank=0, device=torch.device("cpu"), clock=clock, spool=spool,
        rank0_log=Rank0Log(0, spool, EventSpool(tmp_path / "events", 0)),
        metric_names=(), global_batch_size=1,
        utilization=Utilization(flops=5e5, peak=1e6, devices=1),
    )  # fmt: skip
    clock.start()
    clock.finish()
    recorder.step(1, [torch.tensor(1.0)], torch.tensor(1.0), 0.1)
    rows = recorder.rows()
    rows[0, recorder.seconds_column] = 2.0
    result = SyncResult(
        command=Command.RUN,
        save=False,
        peak_memory_bytes=0.0,
        request=0,
        generation=0,
        means=rows,
    )
    assert recorder.write(result)["model_flops_utilization"] == [25.0]
