"""Choosing the next token of each request from its logits, without state.

The random number of a token is a function of the request's seed and of the token's index in the
answer. So a token depends neither on the requests that share its batch nor on how often its own
request was preempted, and a seed given twice gives the same answer twice.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from radix_engine.model.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class SampleRow:
    """The request behind one row of logits.

    ``seed`` is the request's resolved seed (``params.seed`` or the one chosen for it); ``index``
    counts the tokens it has generated so far.
    """

    params: SamplingParams
    seed: int
    index: int


def sample(logits: torch.Tensor, rows: Sequence[SampleRow]) -> list[int]:
    """Choose one token per row of ``logits`` (float, [len(rows), vocabulary]).

    Rows are independent of each other. Greedy rows cost one argmax together; rows with neither
    top_k nor top_p a softmax and a cumulative sum in float64; the others a sort besides.
    Raises ValueError when the number of rows differs from ``len(rows)``.
    """
    if logits.dim() != 2 or logits.shape[0] != len(rows):
        raise ValueError(f"logits of shape {tuple(logits.shape)} do not fit {len(rows)} rows")
    if not rows:
        return []
    drawn = [i for i, row in enumerate(rows) if not row.params.is_greedy]
    tokens = [0] * len(rows) if len(drawn) == len(rows) else logits.argmax(dim=-1).tolist()
    vocabulary = logits.shape[1]
    plain = [i for i in drawn if not _is_filtered(rows[i].params, vocabulary)]
    filtered = [i for i in drawn if _is_filtered(rows[i].params, vocabulary)]
    for group, draw in ((plain, _draw_plain), (filtered, _draw_filtered)):
        if group:
            scores = logits if len(group) == len(rows) else logits[group]
            chosen = draw(scores, [rows[i] for i in group])
            for i, token in zip(group, chosen.tolist(), strict=True):
                tokens[i] = token
    return tokens


def not_finite(logits: torch.Tensor) -> list[int]:
    """The rows of ``logits`` [rows, vocabulary] with NaN or infinity: no token can be drawn."""
    return torch.isfinite(logits.sum(dim=-1)).logical_not().nonzero().flatten().tolist()


def seed_of_answer(seed: int, index: int) -> int:
    """The seed for answer number ``index`` of several to one prompt, in the range of int64.

    Answer 0 has the seed itself, so it is the answer of a request for one; the others have numbers
    that neither depend on each other nor on how many there are. A request for one answer with this
    seed gets the same as answer ``index`` here.
    """
    if not index:
        return seed
    digest = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def uniform(seed: int, index: int) -> float:
    """The random number in [0, 1) for the token with this index: 53 bits of a BLAKE2b hash."""
    digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def _draw_plain(logits: torch.Tensor, rows: list[SampleRow]) -> torch.Tensor:
    probabilities = _scaled(logits, rows).softmax(dim=-1)
    return _invert(probabilities.cumsum(dim=-1), rows)


def _draw_filtered(logits: torch.Tensor, rows: list[SampleRow]) -> torch.Tensor:
    """As above, over the tokens that top_k and then top_p leave, likeliest first."""
    vocabulary = logits.shape[1]
    # A stable sort keeps equal logits in the order of their ids, so ties depend on nothing else.
    # It runs on the logits as they come; scaling keeps their order.
    limit = max(_top_k(row.params, vocabulary) for row in rows)
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    scores = _scaled(ordered[:, :limit], rows)
    top_k = _column([_top_k(row.params, vocabulary) for row in rows], scores)
    scores.masked_fill_(torch.arange(limit, device=scores.device) >= top_k, -math.inf)
    probabilities = scores.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    top_p = _column([row.params.top_p for row in rows], scores)
    beyond = (before >= top_p) & (top_p < 1)
    beyond[:, 0] = False
    probabilities.masked_fill_(beyond, 0.0)
    picks = _invert(probabilities.cumsum(dim=-1), rows)
    return order.gather(1, picks.unsqueeze(1)).squeeze(1)


def _scaled(logits: torch.Tensor, rows: list[SampleRow]) -> torch.Tensor:
    """Logits over temperature in float64, shifted to a maximum of 0 so that nothing overflows."""
    scores = logits.to(torch.float64)
    scores = scores - scores.amax(dim=-1, keepdim=True)
    return scores.div_(_column([row.params.temperature for row in rows], scores))


def _invert(cumulative: torch.Tensor, rows: list[SampleRow]) -> torch.Tensor:
    """The first column whose cumulative sum exceeds the row's random share of the total."""
    total = cumulative[:, -1:].contiguous()
    target = total * _column([uniform(row.seed, row.index) for row in rows], cumulative)
    target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target, right=True).squeeze(1)


def _column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, device=like.device).unsqueeze(1)


def _top_k(params: SamplingParams, vocabulary: int) -> int:
    return min(params.top_k, vocabulary) if params.top_k > 0 else vocabulary


def _is_filtered(params: SamplingParams, vocabulary: int) -> bool:
    return params.top_p < 1 or _top_k(params, vocabulary) < vocabulary
