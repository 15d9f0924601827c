"""Model FLOP utilisation: the share of its devices' peak that a job's model needs (PaLM, Chowdhery
et al., arXiv:2204.02311, appendix B). What is computed twice counts once."""

from dataclasses import dataclass

import torch
from torch import nn

from trainhall.parallelism.flops import forward_and_backward_flops
from trainhall.parallelism.sheets import peak_flops
from trainhall.training.data.batch_reader import Reader, Request
from trainhall.training.event_log import EventLogger
from trainhall.training.spec import Precision
from trainhall.training.tasks.base import Task

log = EventLogger(__name__)


@dataclass(frozen=True)
class Utilization:
    """The operations of a step, and the peak of its devices."""

    flops: float
    """Operations of a step, by the model alone."""
    peak: float
    """Peak operations of one device, per second."""
    devices: int

    def percent(self, seconds: float) -> float:
        """Return the utilization of a step that took `seconds`; 0–100."""
        available = seconds * self.peak * self.devices
        return 100 * self.flops / available if available > 0 else 0.0


def peak_of(device: torch.device, precision: Precision) -> float | None:
    """Return the operations a second of a rank's device; None where unknown."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return peak_flops(name, half=precision is not Precision.FP32)


def utilization_of(
    task: Task,
    model: nn.Module,
    reader: Reader,
    *,
    samples: int,
    batch: int,
    peak: float,
    devices: int,
) -> Utilization | None:
    """Compute it for steps over `batch` samples; None if operations cannot be counted.

    Args:
        model: plain, on any device.
        samples: how many are read and counted: as many as a rank computes at once.
        peak: of one device.
    """
    try:
        few = reader.read(Request(0, torch.arange(samples)))
        flops = forward_and_backward_flops(model, task.loss, few)
    except Exception as error:  # the model reads its numbers, which are none here; it trains still
        log.warning("step_flops_not_counted", error=repr(error))
        return None
    return Utilization(flops * batch / samples, peak, devices) if flops else None
