"""Drawing tokens at random: temperature, min_p, top_k and top_p, for many rows of logits at once.

Each row's numbers come from operations along the row alone, over a width that its own parameters
decide. So no bit of them depends on the rows beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from radix_engine.model.sampling_params import SamplingParams

# Of top_k and top_p mostly a few hundred tokens are left: finding these is ten times cheaper than
# sorting all.
_FEW = 256
_MARGIN = 1e-9  # far above rounding


@dataclass(frozen=True, slots=True)
class Draw:
    """One row's way: ``number`` in [0, 1) is its share of the probabilities to stop at."""

    params: SamplingParams
    number: float


Drawer = Callable[[torch.Tensor, Sequence[Draw]], torch.Tensor]
"""A random token for each row of logits [rows, vocabulary], int64 [rows], left where the logits
are: nothing waits for them. `draw_later` is the reference."""


def draw_later(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """The tokens of `draw`, int64 [rows], left where the logits are: nothing waits for them.

    Cost: as `draw`, but with a sort for every row with top_k or top_p.
    """
    return draw_in_order(logits, draws, _plain, _sorted)


def draw_in_order(
    logits: torch.Tensor, draws: Sequence[Draw], by_id: Drawer, likeliest_first: Drawer
) -> torch.Tensor:
    """Each row by the drawer of its order: the shares of tokens lie next to each other in the order
    of their ids, but likeliest first where top_k or top_p leaves some of them out."""
    width = logits.shape[1]
    plain = [row for row, each in enumerate(draws) if _kind(each.params, width, 0) == _PLAIN]
    if len(plain) == len(draws):
        return by_id(logits, draws)
    if not plain:
        return likeliest_first(logits, draws)
    tokens = torch.empty(len(draws), dtype=torch.int64, device=logits.device)
    others = sorted(set(range(len(draws))).difference(plain))
    for drawer, rows in ((by_id, plain), (likeliest_first, others)):
        places = on_device(np.array(rows), logits.device)
        own = drawer(logits.index_select(0, places), [draws[row] for row in rows])
        tokens.index_copy_(0, places, own)
    return tokens


def draw(logits: torch.Tensor, draws: Sequence[Draw]) -> list[int]:
    """A random token for each row of ``logits`` (float, [rows, vocabulary]).

    Cost: a softmax and a cumulative sum in float64. For rows with top_k or top_p also a look for
    the likeliest 256 tokens, and a sort where that is too few, or equals stand at their end.
    """
    vocabulary = logits.shape[1]
    few = min(_FEW, vocabulary)
    groups: dict[int, list[int]] = {_PLAIN: [], _TOP_K: [], _TOP_P: [], _SORTED: []}
    for row, each in enumerate(draws):
        groups[_kind(each.params, vocabulary, few)].append(row)
    tokens = [0] * len(draws)

    def each_of(kind: int) -> tuple[torch.Tensor, list[Draw]]:
        rows = groups[kind]
        own = logits if rows == list(range(len(draws))) else logits[rows]
        return own, [draws[row] for row in rows]

    def found(kind: int, drawn: Sequence[int | None]) -> None:
        for row, token in zip(groups[kind], drawn, strict=True):
            if token is None:
                groups[_SORTED].append(row)
            else:
                tokens[row] = token

    for kind in (_TOP_K, _TOP_P):
        if groups[kind]:
            found(kind, _few(*each_of(kind)))
    for kind, method in ((_PLAIN, _plain), (_SORTED, _sorted)):
        if groups[kind]:
            found(kind, method(*each_of(kind)).tolist())
    return tokens


_PLAIN, _TOP_K, _TOP_P, _SORTED = range(4)


def _kind(params: SamplingParams, vocabulary: int, few: int) -> int:
    if 0 < params.top_k < vocabulary:
        return _TOP_K if params.top_k <= few < vocabulary else _SORTED
    if params.top_p < 1:
        return _TOP_P if few < vocabulary else _SORTED
    return _PLAIN


def _plain(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """In the order of the ids, from all tokens that min_p leaves."""
    probabilities = _scores(logits, draws).softmax(dim=-1)
    return invert(probabilities.cumsum(dim=-1), _numbers(draws, probabilities))


def _sorted(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """Likeliest first, from all tokens."""
    # A stable sort keeps equal logits in the order of their ids, so ties depend on nothing else.
    values, ids = logits.sort(dim=-1, descending=True, stable=True)
    scores = _scores(values, draws)
    _keep_top_k(scores, draws)
    probabilities = scores.softmax(dim=-1)
    return _draw_ordered(probabilities, ids, draws)


def _few(logits: torch.Tensor, draws: Sequence[Draw]) -> list[int | None]:
    """Likeliest first, from the few likeliest tokens, for rows all with top_k or all without; None
    where those are not enough to tell."""
    top_k = draws[0].params.top_k > 0
    values, ids = logits.topk(_FEW + 1)
    # Which of several equals are among the few is undefined; those above them are all there.
    complete = (values[:, :-1] > values[:, -1:]).sum(dim=-1, keepdim=True)
    # Where no more are possible at all, what is left out cannot come.
    complete = complete.masked_fill(values[:, -1:] == -math.inf, _FEW)
    # Equals in the order of their ids.
    ids, by_id = ids[:, :-1].sort(dim=-1)
    values, order = values.gather(1, by_id).sort(dim=-1, descending=True, stable=True)
    ids = ids.gather(1, order)
    if top_k:
        scores = _scores(values, draws)
        _keep_top_k(scores, draws)
        enough = complete >= _column([each.params.top_k for each in draws], scores)
        probabilities = scores.softmax(dim=-1)
    else:
        probabilities = _scores(logits, draws).softmax(dim=-1).gather(1, ids)
        missing = torch.arange(_FEW, device=logits.device) >= complete
        sums = probabilities.cumsum(dim=-1).masked_fill_(missing, 0.0)
        top_p = _column([each.params.top_p for each in draws], probabilities)
        enough = sums.amax(dim=-1, keepdim=True) > top_p + _MARGIN
    drawn = _draw_ordered(probabilities, ids, draws)
    return [
        token if known else None
        for token, known in zip(drawn.tolist(), enough.flatten().tolist(), strict=True)
    ]


def _draw_ordered(
    probabilities: torch.Tensor, ids: torch.Tensor, draws: Sequence[Draw]
) -> torch.Tensor:
    """From the tokens that top_p leaves of these, which come likeliest first."""
    before = probabilities.cumsum(dim=-1) - probabilities
    top_p = _column([each.params.top_p for each in draws], probabilities)
    beyond = (before >= top_p) & (top_p < 1)
    beyond[:, 0] = False
    probabilities.masked_fill_(beyond, 0.0)
    picks = invert(probabilities.cumsum(dim=-1), _numbers(draws, probabilities))
    return ids.gather(1, picks.unsqueeze(1)).squeeze(1)


def _scores(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """Logits over temperature in float64, shifted to a maximum of 0 so that nothing overflows;
    what min_p leaves out has minus infinity."""
    scores = logits.to(torch.float64)
    scores = scores - scores.amax(dim=-1, keepdim=True)
    scores.div_(_column([each.params.temperature for each in draws], scores))
    if any(each.params.min_p for each in draws):
        least = [least_score(each.params) for each in draws]
        scores.masked_fill_(scores < _column(least, scores), -math.inf)
    return scores


def _keep_top_k(scores: torch.Tensor, draws: Sequence[Draw]) -> None:
    """Of scores that come likeliest first."""
    width = scores.shape[1]
    top_k = _column(
        [each.params.top_k if each.params.top_k > 0 else width for each in draws], scores
    )
    scores.masked_fill_(torch.arange(width, device=scores.device) >= top_k, -math.inf)


def invert(cumulative: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """The first column whose ``cumulative`` sum, float64 [rows, columns], exceeds the row's share,
    ``numbers`` float64 [rows, 1], of the total: int64 [rows]."""
    total = cumulative[:, -1:].contiguous()
    target = total * numbers
    target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
    picks = torch.searchsorted(cumulative, target, right=True).squeeze(1)
    # Behind the end where logits are no numbers: whatever is drawn of these, it must be a token.
    return picks.clamp_(max=cumulative.shape[1] - 1)


def least_score(params: SamplingParams) -> float:
    """What min_p asks of a logit over temperature, where the largest is 0."""
    return math.log(params.min_p) if params.min_p else -math.inf


def _numbers(draws: Sequence[Draw], like: torch.Tensor) -> torch.Tensor:
    return _column([each.number for each in draws], like)


def _column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return on_device(np.array(values, np.float64), like.device).unsqueeze(1)


def on_device(values: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """On the device, without waiting for what it does."""
    tensor = torch.from_numpy(values)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
