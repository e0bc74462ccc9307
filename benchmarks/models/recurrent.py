"""benchmarks.models.recurrent: a language model on an LSTM."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.models.case import Case


class LanguageModel(nn.Module):
    """Embedding, two LSTM layers, a projection to the vocabulary."""

    def __init__(self, vocabulary: int = 1000, width: int = 256, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.embedding(tokens))
        return self.head(self.norm(hidden))


CASES = (Case("lstm", lambda: (LanguageModel(), (torch.randint(1000, (4, 64)),))),)
