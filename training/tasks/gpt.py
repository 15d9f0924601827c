"""A GPT decoder, as GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners").

Shapes: B sequences, T positions, D width, H heads of width d, E = 3D, V rows of the vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainhall.training.spec.models import Shape

_INITIAL_STD = 0.02


class Embedding(nn.Module):
    """Tokens int64 [B, T] and their positions as vectors [B, T, D]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        positions_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        x_BTD: Tensor = self.dropout(self.tokens(tokens_BT) + self.positions(positions_T))
        return x_BTD


class Attention(nn.Module):
    """Causal self-attention: each position looks at itself and what came before it.

    The first layer's outputs are ordered by head, then query, key and value, so that a part of its
    rows is a part of the heads.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_width = shape.width // shape.heads
        self.dropout = shape.dropout
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.output = nn.Linear(shape.width, shape.width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        joint_BTE = self.query_key_value(x_BTD)
        joint_BTH3d = joint_BTE.unflatten(-1, (-1, 3, self.head_width))
        q_BHTd, k_BHTd, v_BHTd = joint_BTH3d.permute(3, 0, 2, 1, 4).unbind()
        mixed_BHTd = functional.scaled_dot_product_attention(
            q_BHTd, k_BHTd, v_BHTd, is_causal=True, dropout_p=self.dropout if self.training else 0.0
        )
        mixed: Tensor = self.output(mixed_BHTd.transpose(1, 2).flatten(-2))
        return mixed


class FeedForward(nn.Module):
    """Two layers, the inner one four times as wide."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.inner = nn.Linear(shape.width, 4 * shape.width)
        self.output = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        mixed: Tensor = self.output(functional.gelu(self.inner(x_BTD), approximate="tanh"))
        return mixed


class Block(nn.Module):
    """Attention, then the feed-forward layers; each reads a normalised stream and adds to it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.width)
        self.attention = Attention(shape)
        self.feed_forward_norm = nn.LayerNorm(shape.width)
        self.feed_forward = FeedForward(shape)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_BTD = x_BTD + self.dropout(self.attention(self.attention_norm(x_BTD)))
        added_BTD: Tensor = self.dropout(self.feed_forward(self.feed_forward_norm(x_BTD)))
        return x_BTD + added_BTD


class GPT(nn.Module):
    """Logits [B, T, V] of what follows each position of tokens int64 [B, T]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = Embedding(shape)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self._initialise()
        # One matrix reads and writes tokens (Press & Wolf, arXiv:1608.05859).
        self.head.weight = self.embedding.tokens.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = self.embedding(tokens_BT)
        for block in self.blocks:
            x_BTD = block(x_BTD)
        logits_BTV: Tensor = self.head(self.norm(x_BTD))
        return logits_BTV

    def _initialise(self) -> None:
        """Initialise as GPT-2: layers that add to the stream get smaller weights."""
        scaled = _INITIAL_STD / (2 * self.shape.layers) ** 0.5
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                std = scaled if name.endswith(".output") else _INITIAL_STD
                nn.init.normal_(module.weight, std=std)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
