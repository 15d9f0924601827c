"""A task of your own: classify points by their spiral (docs/tasks.md)."""

import math

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, Subset

from trainhall.task import Task, TaskParams


class Spirals(Task):
    class Params(TaskParams):
        points: int = 2000
        turns: float = 1.5
        noise: float = 0.02
        hidden: int = 32

    metric_names = ("accuracy",)

    def __init__(self, params, job):
        self.params = params
        points = Points(params)
        # Two of every ten points are for validation, one of each spiral.
        every = range(params.points)
        self.train_data = Subset(points, [i for i in every if i % 10 > 1])
        self.eval_data = Subset(points, [i for i in every if i % 10 <= 1])

    def build_model(self):
        hidden = self.params.hidden
        return nn.Sequential(
            nn.Linear(2, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, 2),
        )

    def loss(self, model, batch):
        points, labels = batch
        logits = model(points)
        accuracy = (logits.argmax(dim=1) == labels).float().mean()
        return functional.cross_entropy(logits, labels), (accuracy,)


class Points(Dataset):
    """Points near two spirals: point i on spiral i mod 2, with other noise in every epoch."""

    def __init__(self, params):
        self.params = params

    def __len__(self):
        return self.params.points

    def __getitem__(self, index):
        along = (index + 1) / len(self)
        angle = 2 * math.pi * self.params.turns * along + math.pi * (index % 2)
        point = along * torch.tensor([math.cos(angle), math.sin(angle)])
        return point + self.params.noise * torch.randn(2), index % 2
