"""Tasks as users write them, good and bad, for tests of the engine."""

import os
import random
import signal
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from trainhall.task import Declaration, Split, Task, TaskParams, TensorData


class Numbers(Dataset[Any]):
    """Sample i is i, with noise from every generator that augmentations draw from."""

    def __init__(self, size: int, folder: str = "") -> None:
        self.size = size
        self.folder = folder

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.folder:
            Path(self.folder, f"reader-{os.getpid()}").touch()
        noise = torch.rand(()).item() + random.random() + float(np.random.rand())
        return {"id": index, "noise": noise, "x": torch.full((4,), index / self.size)}


class Ledger(Task):
    """Writes down every sample that it trains on."""

    class Params(TaskParams):
        folder: str
        size: int = 40
        hidden: int = 3

    def __init__(self, params: Params, job: Any) -> None:
        self.folder = params.folder
        self.hidden = params.hidden
        self.train_data = Numbers(params.size, params.folder)
        self.eval_data = Numbers(11)
        Path(self.folder, f"rank-{os.getpid()}").touch()

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, self.hidden), nn.Dropout(0.1), nn.Linear(self.hidden, 1))

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        if model.training:
            with Path(self.folder, "ledger").open("a") as file:
                for row in zip(batch["id"].tolist(), batch["noise"].tolist(), strict=True):
                    file.write(f"{row[0]} {row[1]:.12f}\n")
        return model(batch["x"]).square().mean(), ()


class Slow(Ledger):
    """Trains until it is ended."""

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        torch.rand(1000).sort()
        return super().loss(model, batch)


class Plain(Task):
    """A task without `Params`; the bad ones below differ from it in one thing."""

    metric_names = ("size",)

    def __init__(self, params: dict[str, Any], job: Any) -> None:
        self.params = params
        self.train_data = TensorData(torch.randn(64, 4), torch.randn(64, 1))
        self.eval_data = TensorData(torch.randn(8, 4), torch.randn(8, 1))

    def build_model(self) -> nn.Module:
        return nn.Linear(4, 1)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        inputs, targets = batch
        return (model(inputs) - targets).square().mean(), (inputs.abs().mean(),)


class Raises(Plain):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return batch["images"]


class RaisesAtFirst(Plain):
    def __init__(self, params: dict[str, Any], job: Any) -> None:
        raise FileNotFoundError("no such data")


class LeavesEarly(Plain):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        raise SystemExit(0)


class NotANumber(Plain):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        loss, metrics = super().loss(model, batch)
        return loss * float("nan"), metrics


class NotAScalar(Plain):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return model(batch[0]), (batch[0].mean(),)


class TooFewMetrics(Plain):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch)[0]


class Detached(Plain):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        loss, metrics = super().loss(model, batch)
        return loss.detach(), metrics


class NoModel(Plain):
    def build_model(self) -> Any:
        return None


class NothingToTrain(Plain):
    def build_model(self) -> nn.Module:
        return nn.ReLU()


class Empty(Plain):
    def __init__(self, params: dict[str, Any], job: Any) -> None:
        super().__init__(params, job)
        self.train_data = TensorData(torch.randn(0, 4), torch.randn(0, 1))


class NoValidationData(Plain):
    def __init__(self, params: dict[str, Any], job: Any) -> None:
        super().__init__(params, job)
        self.eval_data = TensorData(torch.randn(0, 4), torch.randn(0, 1))


class Different(Plain):
    """Rank 1 finds fewer samples."""

    def __init__(self, params: dict[str, Any], job: Any) -> None:
        super().__init__(params, job)
        if os.environ["RANK"] == "1":
            self.train_data = TensorData(torch.randn(63, 4), torch.randn(63, 1))


class NoData(Plain):
    def __init__(self, params: dict[str, Any], job: Any) -> None:
        pass


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield torch.zeros(4), torch.zeros(1)


class Endless(Plain):
    def __init__(self, params: dict[str, Any], job: Any) -> None:
        super().__init__(params, job)
        self.train_data = cast(Any, Stream())


class TakenName(Plain):
    metric_names = ("loss",)


class TakenTime(Plain):
    metric_names = ("compression_seconds",)


class TakenShare(Plain):
    metric_names = ("bubble_fraction",)


class Uneven(Dataset[Any]):
    """Sample 9 has another shape."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.zeros(5 if index == 9 else 4), torch.zeros(1)


class UnevenSamples(Plain):
    def __init__(self, params: dict[str, Any], job: Any) -> None:
        super().__init__(params, job)
        self.train_data = Uneven()


class Growing(TensorData):
    """The batch with sample 9 is wider than the others."""

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = super().batch(indices)
        return (torch.cat([inputs, inputs], 1) if 9 in indices else inputs), targets


class ChangingBatches(Plain):
    def __init__(self, params: dict[str, Any], job: Any) -> None:
        super().__init__(params, job)
        self.train_data = Growing(torch.randn(64, 4), torch.randn(64, 1))


class Short(TensorData):
    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        return super().batch(indices[1:])


class TooFewSamples(Plain):
    def __init__(self, params: dict[str, Any], job: Any) -> None:
        super().__init__(params, job)
        self.train_data = Short(torch.randn(64, 4), torch.randn(64, 1))


class Broken(Dataset[Any]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        raise KeyError("no column 'price'")


class BrokenSamples(Plain):
    def __init__(self, params: dict[str, Any], job: Any) -> None:
        super().__init__(params, job)
        self.train_data = Broken()


class Unfinished(Task):
    """It has no loss."""

    def build_model(self) -> nn.Module:
        return nn.Linear(1, 1)


not_a_task = dict


class Normed(Task):
    """A model whose buffers change while it trains, beside some that stay."""

    def __init__(self, params: Any, job: Any) -> None:
        generator = torch.Generator().manual_seed(0)
        features, labels = torch.randn(120, 6, generator=generator), torch.arange(120) % 3
        self.train_data = TensorData(features, labels)
        self.eval_data = TensorData(features[:20], labels[:20])

    def build_model(self) -> nn.Module:
        model = nn.Sequential(
            nn.Linear(6, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Dropout(0.1), nn.Linear(9, 3)
        )
        model.register_buffer("mask", torch.tensor([0.1, -torch.inf, torch.nan]))
        return model

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        features, labels = batch
        return nn.functional.cross_entropy(model(features), labels), ()


class Unused(Normed):
    """A model of which a part takes no part."""

    def build_model(self) -> nn.Module:
        model: Any = super().build_model()
        model.register_module("spare", nn.Linear(2, 2))
        forward: Any = nn.Sequential.forward
        model.forward = lambda features: forward(model[:5], features)
        return cast(nn.Module, model)


class NoDerivative(Normed):
    """In one forward pass, or from it on, the loss is a number and its gradient is none."""

    def __init__(self, params: dict[str, Any], job: Any) -> None:
        super().__init__(params, job)
        self.at, self.lasts = params["at"], params.get("lasts", False)
        self.passes = 0

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        loss, measures = super().loss(model, batch)
        if model.training:
            self.passes += 1
            if self.passes == self.at or (self.lasts and self.passes > self.at):
                # The root of zero is zero, and its derivative infinite; that of a square is zero.
                loss = loss + (loss - loss.detach()).square().sqrt()
        return loss, measures


class Row(NamedTuple):
    features: Tensor
    labels: Tensor
    smoothing: Tensor
    """One number for the whole batch."""


class Rows(TensorData):
    def batch(self, indices: Tensor) -> Any:
        return Row(*super().batch(indices), torch.tensor(0.1))


class Named(Normed):
    """Its batches are named tuples, with a tensor that has no dimension, and it can be cut."""

    def __init__(self, params: dict[str, Any], job: Any) -> None:
        super().__init__(params, job)
        self.params = params
        train, held = self.train_data, self.eval_data
        assert isinstance(train, TensorData)
        assert isinstance(held, TensorData)
        self.train_data = Rows(train.inputs, train.targets)
        self.eval_data = Rows(held.inputs, held.targets)

    def build_model(self) -> nn.Module:
        if self.params.get("layers") == 4:
            return nn.Sequential(*(nn.Linear(6, 6) for _ in range(3)), nn.Linear(6, 3))
        return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3))

    def declaration(self) -> Declaration:
        if self.params.get("layers") == 4:
            return Declaration(layers=(("0",), ("1",), ("2",), ("3",)))
        return Declaration(layers=(("0", "1"), ("2",)))

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        assert isinstance(batch, Row)
        smoothing = float(batch.smoothing)
        output = model(batch.features)
        return nn.functional.cross_entropy(output, batch.labels, label_smoothing=smoothing), ()


class Misnamed(Named):
    """It divides a layer that its model has not."""

    def build_model(self) -> nn.Module:
        last = nn.Sequential()
        last.add_module("up", nn.Linear(9, 3))
        return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), last)

    def declaration(self) -> Declaration:
        return Declaration(layers=(("0", "1"), ("2",)), splits=(Split("0", "2.down", 9, "units"),))


class Killed(Named):
    """Rank 1 is killed as it computes a loss."""

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(model, batch)


class Frozen(Named):
    """Some of its four layers are not trained; with `tied`, the second and third share weights."""

    def build_model(self) -> nn.Module:
        layers = [nn.Linear(6, 9), nn.Linear(9, 9), nn.Linear(9, 9), nn.Linear(9, 3)]
        if self.params.get("tied"):
            layers[2].weight = layers[1].weight
        for index in self.params["frozen"]:
            layers[index].requires_grad_(False)
        return nn.Sequential(*layers)

    def declaration(self) -> Declaration:
        return Declaration(layers=(("0",), ("1",), ("2",), ("3",)))


class Contrasted(Named):
    """Its loss compares two outputs of the model."""

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        return (model(batch.features) - model(-batch.features)).square().mean(), ()


class Augmented(Named):
    """Its loss varies what the model is trained on, and nothing else."""

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        features = batch.features + 3 if model.training else batch.features
        return nn.functional.cross_entropy(model(features), batch.labels), ()


class Chosen(Named):
    """Its loss shows the model some samples of a batch alone."""

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        chosen = batch.features[:, 0] > 0
        output = model(batch.features[chosen])
        return nn.functional.cross_entropy(output, batch.labels[chosen]), ()


class Drawn(Named):
    """Writes down, for each rank, what its loss has drawn before it has called the model."""

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        drawn = [random.random(), float(np.random.rand()), float(torch.rand(()))]
        if model.training:
            with Path(self.params["folder"], os.environ["RANK"]).open("a") as file:
                file.write(f"{drawn}\n")
        share = sum(drawn) / len(drawn)
        return share * super().loss(model, batch)[0], ()


class Sometimes(nn.Module):
    """Two layers, one of which some ranks leave out."""

    def __init__(self, without: list[int]) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)
        self.beside = nn.Linear(6, 6)
        self.skips = int(os.environ.get("RANK", "0")) in without

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(self.up(x).relu())
        return y if self.skips else y + self.beside(x)


class LeavesOut(nn.Sequential):
    """Its layer in the middle is left out by some ranks in one of `rounds` passes."""

    def __init__(self, layers: list[nn.Module], without: list[int], rounds: int) -> None:
        super().__init__(*layers)
        self.passes, self.rounds = 0, rounds
        self.skips = int(os.environ.get("RANK", "0")) in without

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        if self.skips and self.passes % self.rounds == 0:
            return self[2](self[0](x))  # type: ignore[no-any-return]
        return super().forward(x)  # type: ignore[no-any-return,no-untyped-call]


class LeftOutLayer(Named):
    """The ranks of `without` leave a layer out, in the first of `rounds` passes; it may be
    `frozen`."""

    def build_model(self) -> nn.Module:
        layers: list[nn.Module] = [nn.Linear(6, 6) for _ in range(3)]
        layers[1].requires_grad_(not self.params.get("frozen", False))
        return LeavesOut(layers, self.params["without"], self.params["rounds"])

    def declaration(self) -> Declaration:
        return Declaration(layers=(("0",), ("1",), ("2",)))


class LeftOut(Named):
    """The ranks of `without` leave a part of a layer out, in each of their passes."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(Sometimes(self.params["without"]), nn.Linear(6, 3))

    def declaration(self) -> Declaration:
        return Declaration(
            layers=(("0",), ("1",)), splits=(Split("0.up", "0.down", 8, "hidden units"),)
        )

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        return nn.functional.cross_entropy(model(batch.features), batch.labels), ()


class Doubting(nn.Sequential):
    """Looks at what it has computed, but for where its layers are called by themselves."""

    def forward(self, x: Any) -> Any:
        output = super().forward(x)  # type: ignore[no-untyped-call]
        if not output.isfinite().all():
            raise ValueError("that is no number")
        return output


class LooksAtValues(Named):
    def build_model(self) -> nn.Module:
        return Doubting(nn.Linear(6, 8), nn.Linear(8, 3))

    def declaration(self) -> Declaration:
        return Declaration(layers=(("0",), ("1",)))

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        return nn.functional.cross_entropy(model(batch.features), batch.labels), ()


class Counting(nn.Linear):
    """Keeps a number that is neither a parameter nor a buffer."""

    seen = 0

    def get_extra_state(self) -> Any:
        return {"seen": self.seen}

    def set_extra_state(self, state: Any) -> None:
        self.seen = state["seen"]


class Counted(Plain):
    def build_model(self) -> nn.Module:
        return nn.Sequential(Counting(4, 1))
