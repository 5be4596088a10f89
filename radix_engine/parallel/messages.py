"""What rank 0 tells the other ranks: int32 numbers, the first of which says what is to be done.

::

    STEP   spans  lengths  starts  logits wanted  blocks named  |  token ids  |  block tables
    COPY   source, target, rows of each
    LOAD   bytes: a pickled `LoadRequest` (rank 0 is the parent process, so it can be trusted)
    START  number of blocks, block size
    END
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import torch

from radix_engine.model.batch import Span
from radix_engine.model.linear import Linear
from radix_engine.model.served import Runner
from radix_engine.model.source import ModelFolder
from radix_engine.model.weights import LoadedModel

Numbers = npt.NDArray[np.int32]

RunnerMaker = Callable[[LoadedModel[Linear], int, int], Runner]
"""Makes a rank's runner of its part of a model, the number of blocks and their size."""

_WORD = 4  # bytes of an int32


class Kind(IntEnum):
    """What a message asks for."""

    STEP = 1
    COPY = 2
    LOAD = 3
    START = 4
    END = 5


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Load a rank's part of this model. ``make_runner`` is a function of a module."""

    folder: ModelFolder
    dtype: torch.dtype
    make_runner: RunnerMaker


def kind_of(message: bytes) -> Kind:
    """What a message asks for."""
    return Kind(int(np.frombuffer(message, np.int32, 1)[0]))


def encode_step(spans: Sequence[Span], block_size: int, num_blocks: int, vocab_size: int) -> bytes:
    """A step. Of the block tables only what the spans need is sent.

    Raises ValueError for ids and blocks that do not exist and for tables that are too short.
    """
    ids, tables = array("i"), array("i")
    numbers = np.empty((4, len(spans)), np.int32)
    try:
        for i, (tokens, start, table, num_logits) in enumerate(spans):
            end = start + len(tokens)
            needed = -(-end // block_size)
            if len(table) < needed:
                raise ValueError(
                    f"a context of {end} tokens needs {needed} blocks of {block_size}, "
                    f"but the block table names {len(table)}"
                )
            numbers[:, i] = (len(tokens), start, num_logits, needed)
            ids.extend(tokens)
            tables.extend(table[:needed])
    except OverflowError as error:
        raise ValueError(f"a token id or a block is out of range: {error}") from error
    _check_range(ids, vocab_size, "a token id lies")
    _check_range(tables, num_blocks, "a block table names blocks")
    head = array("i", (Kind.STEP, len(spans)))
    return b"".join((head.tobytes(), numbers.tobytes(), ids.tobytes(), tables.tobytes()))


def decode_step(message: bytes) -> list[Span]:
    """The spans of a STEP message."""
    count = int(np.frombuffer(message, np.int32, 2)[1])
    numbers: Numbers = np.frombuffer(message, np.int32, 4 * count, 2 * _WORD).reshape(4, count)
    body = array("i")
    body.frombytes(message[(2 + 4 * count) * _WORD :])
    spans = []
    id_at, block_at = 0, int(numbers[0].sum())
    for length, start, num_logits, blocks in numbers.T.tolist():
        ids, table = body[id_at : id_at + length], body[block_at : block_at + blocks]
        spans.append(Span(ids, start, table, num_logits))
        id_at += length
        block_at += blocks
    return spans


def encode_copies(copies: Sequence[tuple[int, int, int]]) -> bytes:
    """Copies of rows between blocks, which were checked already."""
    message = array("i", (Kind.COPY,))
    for copy in copies:
        message.extend(copy)
    return message.tobytes()


def decode_copies(message: bytes) -> list[tuple[int, int, int]]:
    """The copies of a COPY message."""
    rows: Numbers = np.frombuffer(message, np.int32, offset=_WORD).reshape(-1, 3)
    return [(source, target, count) for source, target, count in rows.tolist()]


def encode_load(request: LoadRequest) -> bytes:
    """A model to load."""
    return array("i", (Kind.LOAD,)).tobytes() + pickle.dumps(request)


def decode_load(message: bytes) -> LoadRequest:
    """The request of a LOAD message."""
    request = pickle.loads(message[_WORD:])
    assert isinstance(request, LoadRequest)
    return request


def encode_start(num_blocks: int, block_size: int) -> bytes:
    """A runner to make of the loaded model."""
    return array("i", (Kind.START, num_blocks, block_size)).tobytes()


def decode_start(message: bytes) -> tuple[int, int]:
    """Number of blocks and block size of a START message."""
    num_blocks, block_size = np.frombuffer(message, np.int32, 2, _WORD).tolist()
    return num_blocks, block_size


def encode_end() -> bytes:
    """The end of the group."""
    return array("i", (Kind.END,)).tobytes()


def _check_range(values: array[int], end: int, what: str) -> None:
    numbers: Numbers = np.frombuffer(values, np.int32)
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < end:
        raise ValueError(f"{what} outside 0 to {end - 1}")
