"""From options to the parts of an engine: find the model, load it, size the KV memory."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from radix_engine.memory.sizing import available_memory_bytes, blocks_for, kv_memory_bytes
from radix_engine.model.linear import pick_dtype
from radix_engine.model.load import LoadProgress, load_model
from radix_engine.model.source import resolve_model
from radix_engine.model.weights import LoadedModel
from server.options import BLOCK_SIZE, EngineOptions
from server.text import TextCodec


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What an engine is made of."""

    model: LoadedModel
    text: TextCodec
    num_blocks: int


def load_parts(options: EngineOptions, progress: LoadProgress | None = None) -> EngineParts:
    """Fetch (the first time), load and size. ``progress`` gets (layers loaded, layers of the
    model).

    Sets the process's number of torch threads. Raises ModelError or ValueError with a message for
    the user.
    """
    torch.set_num_threads(options.threads or usable_processors())
    dtype = pick_dtype(options.dtype)
    folder = resolve_model(options.model)
    with ThreadPoolExecutor(1) as pool:
        text = pool.submit(TextCodec, folder.path)
        model = load_model(folder, dtype, progress=progress)
        codec = text.result()
    per_token = model.config.kv_bytes_per_token(dtype)
    size = kv_memory_bytes(
        options.kv_memory, available_memory_bytes(), per_token, model.config.context_length
    )
    return EngineParts(model, codec, blocks_for(size, per_token * BLOCK_SIZE))


def usable_processors() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0))
