"""Making an engine's model say what a test wants."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from radix_engine.model.batch import Span
from server import Engine


def force(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, prompt_tokens: int, answer: Sequence[int]
) -> None:
    """Prompts of this length are answered with these tokens, likeliest by far, then again and
    again the last."""
    model = engine._loop._steps._model
    forward = model.forward

    def forced(spans: list[Span]) -> torch.Tensor:
        logits = torch.zeros_like(forward(spans))
        row = 0
        for span in spans:
            end = span.start + len(span.tokens)
            for position in range(end - span.num_logits, end):
                place = min(max(position + 1 - prompt_tokens, 0), len(answer) - 1)
                logits[row, answer[place]] = 40.0
                row += 1
        return logits

    monkeypatch.setattr(model, "forward", forced)
