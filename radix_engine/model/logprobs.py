"""Log-probabilities of tokens, in the model's own distribution: before any penalty, bias or
temperature."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from radix_engine.model.token_logprob import MAX_TOP, TokenLogprob

FLOOR = -9999.0  # in place of anything lower: JSON has no infinity

_ROWS_AT_A_TIME = 64  # bounds the memory: two more copies of so many rows


def token_logprobs(
    logits: torch.Tensor, tokens: Sequence[int], tops: Sequence[int]
) -> list[TokenLogprob]:
    """The log-probability of ``tokens[i]`` and of the ``tops[i]`` likeliest (0 to 20) in row i of
    ``logits`` (float, [rows, vocabulary]), at least -9999.0.

    Rows do not depend on each other. Cost: a log-softmax, and a top-k where a top is asked for.
    """
    found: list[TokenLogprob] = []
    for first in range(0, len(tokens), _ROWS_AT_A_TIME):
        part = slice(first, first + _ROWS_AT_A_TIME)
        found += _of_some(logits[part].to(torch.float32), tokens[part], tops[part])
    return found


def _of_some(
    logits: torch.Tensor, tokens: Sequence[int], tops: Sequence[int]
) -> list[TokenLogprob]:
    log_probs = logits.log_softmax(dim=-1)
    places = torch.tensor(tokens, device=logits.device).unsqueeze(1)
    own = log_probs.gather(1, places).squeeze(1).clamp_(min=FLOOR).tolist()
    wanting = [row for row, top in enumerate(tops) if top]
    likeliest = dict(zip(wanting, _likeliest(log_probs, wanting), strict=True))
    return [
        TokenLogprob(token, value, tuple(likeliest.get(row, ())[: tops[row]]))
        for row, (token, value) in enumerate(zip(tokens, own, strict=True))
    ]


def _likeliest(log_probs: torch.Tensor, rows: Sequence[int]) -> list[list[tuple[int, float]]]:
    """The likeliest tokens of these rows: as many of each, so that no row depends on others."""
    if not rows:
        return []
    if len(rows) < len(log_probs):
        log_probs = log_probs[list(rows)]
    values, tokens = log_probs.topk(min(MAX_TOP, log_probs.shape[1]))
    pairs = zip(tokens.tolist(), values.clamp_(min=FLOOR).tolist(), strict=True)
    return [
        sorted(zip(ids, each, strict=True), key=lambda pair: (-pair[1], pair[0]))
        for ids, each in pairs
    ]
