"""Choosing the next token of each request from its logits, without state.

The random number of a token is a function of the request's seed and of the token's index in the
answer. So a token depends neither on the requests that share its batch nor on how often its own
request was preempted, and a seed given twice gives the same answer twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from radix_engine.model.allowed_tokens import AllowedTokens, forbid_others
from radix_engine.model.penalties import Change, TokenCounts, change_logits
from radix_engine.model.sampling_draw import Draw, Drawer, draw, draw_later, on_device
from radix_engine.model.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class SampleRow:
    """The request behind one row of logits.

    ``seed`` is the request's resolved seed (``params.seed`` or the one chosen for it); ``index``
    counts the tokens it has generated so far. ``counts``: which tokens its prompt and answer have;
    wanted where ``params.penalizes``. ``allowed``: the only tokens that may come; None: any may.
    """

    params: SamplingParams
    seed: int
    index: int
    counts: TokenCounts | None = None
    allowed: AllowedTokens | None = field(default=None, compare=False)

    @property
    def changes_logits(self) -> bool:
        """Whether the token is chosen from other logits than the model's own."""
        return self.params.changes_logits or self.allowed is not None


def sample(
    logits: torch.Tensor, rows: Sequence[SampleRow], drawer: Drawer | None = None
) -> list[int]:
    """Choose one token per row of ``logits`` (float, [len(rows), vocabulary]), in the order of
    operations that `SamplingParams` tells; what a row does not allow is left out after the
    penalties. Changes nothing in ``logits``.

    ``drawer`` draws the random ones; None: torch, as `draw` does. Rows are independent of each
    other. Greedy rows cost a look for the largest; random ones see `draw`. Rows with a bias,
    penalties or ``allowed`` tokens are copied, and cost besides as `change_logits` and
    `forbid_others` say. Raises ValueError when the number of rows differs from ``len(rows)``, and
    for penalties without counts.
    """
    if logits.dim() != 2 or logits.shape[0] != len(rows):
        raise ValueError(f"logits of shape {tuple(logits.shape)} do not fit {len(rows)} rows")
    changed = [index for index, row in enumerate(rows) if row.changes_logits]
    if drawer is not None:
        if changed:
            logits = _with_changes(logits, rows, changed)
        found: list[int] = _sample_later(logits, rows, drawer).tolist()
        return found
    if not changed:
        return _choose(logits, rows, range(len(rows)))
    tokens = [0] * len(rows)
    own = [rows[index] for index in changed]
    copied = logits[changed].to(torch.float32)
    _change(copied, own)
    for index, token in zip(changed, _choose(copied, own, range(len(own))), strict=True):
        tokens[index] = token
    others = [index for index, row in enumerate(rows) if not row.changes_logits]
    for index, token in zip(others, _choose(logits, rows, others), strict=True):
        tokens[index] = token
    return tokens


def sample_later(
    logits: torch.Tensor, rows: Sequence[SampleRow], drawer: Drawer | None = None
) -> torch.Tensor:
    """The tokens of `sample`, int64 [len(rows)], left where the logits are: nothing waits for them,
    so a next step can be given them before anybody knows them.

    Raises ValueError for rows with a bias, penalties or ``allowed`` tokens: these need tokens that
    are known.
    """
    if any(row.changes_logits for row in rows):
        raise ValueError("a bias, penalties and allowed tokens need the tokens before")
    return _sample_later(logits, rows, draw_later if drawer is None else drawer)


def _sample_later(logits: torch.Tensor, rows: Sequence[SampleRow], drawer: Drawer) -> torch.Tensor:
    random = [index for index, row in enumerate(rows) if not row.params.is_greedy]
    draws = [Draw(rows[i].params, uniform(rows[i].seed, rows[i].index)) for i in random]
    if len(random) == len(rows):
        return drawer(logits, draws)
    tokens = logits.argmax(dim=-1)
    if random:
        places = on_device(np.array(random), logits.device)
        drawn = drawer(logits.index_select(0, places), draws)
        tokens.index_copy_(0, places, drawn)
    return tokens


def _with_changes(
    logits: torch.Tensor, rows: Sequence[SampleRow], changed: Sequence[int]
) -> torch.Tensor:
    """A copy of the logits with what is to be changed in some rows."""
    places = on_device(np.array(changed), logits.device)
    own = logits.index_select(0, places).to(torch.float32)
    _change(own, [rows[row] for row in changed])
    if len(changed) == len(rows):
        return own
    return logits.to(torch.float32).index_copy(0, places, own)


def _change(logits: torch.Tensor, rows: Sequence[SampleRow]) -> None:
    """Apply each row's bias and penalties to its logits, and leave out what it does not allow."""
    change_logits(logits, [Change(row.params, _counts(row)) for row in rows])
    forbid_others(logits, [row.allowed for row in rows])


def _choose(logits: torch.Tensor, rows: Sequence[SampleRow], wanted: Sequence[int]) -> list[int]:
    """A token for each of the ``wanted`` rows."""
    random = [index for index in wanted if not rows[index].params.is_greedy]
    tokens: dict[int, int] = {}
    if len(random) < len(wanted):
        best = _likeliest(logits)
        tokens = {index: best[index] for index in wanted}
    if random:
        draws = [Draw(rows[i].params, uniform(rows[i].seed, rows[i].index)) for i in random]
        own = logits if len(random) == len(rows) else logits[random]
        tokens.update(zip(random, draw(own, draws), strict=True))
    return [tokens[index] for index in wanted]


def _likeliest(logits: torch.Tensor) -> list[int]:
    """The column of each row's largest value, the first of equals, of [rows, vocabulary]."""
    if logits.device.type != "cpu":
        return logits.argmax(dim=-1).tolist()
    # torch's takes 15 times as long on a CPU: 0.1 ms a row of 49,152 columns.
    found: list[int] = logits.to(torch.float32).numpy().argmax(axis=-1).tolist()
    return found


def _counts(row: SampleRow) -> TokenCounts:
    if row.counts is not None:
        return row.counts
    if row.params.penalizes:
        raise ValueError("penalties need counts of the tokens that were seen")
    return TokenCounts()


def finite_rows(logits: torch.Tensor) -> torch.Tensor:
    """Which rows of ``logits`` [rows, vocabulary] have neither NaN nor infinity, bool [rows], left
    where the logits are. From others no token can be drawn."""
    return torch.isfinite(logits.sum(dim=-1))


def not_finite(logits: torch.Tensor) -> list[int]:
    """The rows of ``logits`` [rows, vocabulary] with NaN or infinity: no token can be drawn."""
    return finite_rows(logits).logical_not().nonzero().flatten().tolist()


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
