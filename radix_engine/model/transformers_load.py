"""Loading a model with transformers, for running it over KV blocks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from radix_engine.model.config import read_eos_token_ids, read_sampling
from radix_engine.model.errors import ModelError
from radix_engine.model.source import ModelFolder
from radix_engine.model.transformers_config import TransformersConfig, read_transformers_config
from radix_engine.model.transformers_layers import record_layers
from radix_engine.model.transformers_model import TransformersModel
from radix_engine.model.transformers_trial import plain_logits, trial_tokens, try_over_blocks

logger = logging.getLogger(__name__)


def load_transformers_model(
    folder: ModelFolder,
    dtype: torch.dtype,
    device: torch.device | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> TransformersModel:
    """Load a model and try it.

    Only safetensors of ``folder`` are read; no code that comes with the model is run. ``progress``
    is called once at the end, with the number of layers twice. Raises ModelError for a model that
    does not qualify (see `read_transformers_config`), for weights that are missing, and for a model
    that computes something else over blocks than by itself. Cost of the trial: forward passes over
    20, 2, 9 and 16 tokens, which on a CPU is about reading the weights four times, and the memory
    of eight blocks of 4 tokens and the logits of 45.
    """
    began = time.perf_counter()
    device = torch.device("cpu") if device is None else device
    config = read_transformers_config(folder.path)
    module = _load(folder, dtype).to(device)
    try:
        model = _tried(folder, config, dtype, device, module)
    except ModelError:
        raise
    except Exception as error:  # whatever a model's code can set off
        raise ModelError(
            f"model_type {config.model_type!r} cannot be run over KV blocks: "
            f"{type(error).__name__}: {error}"
        ) from error
    if progress is not None:
        progress(len(model.layers), len(model.layers))
    return replace(model, load_seconds=time.perf_counter() - began)


def _load(folder: ModelFolder, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as their_logging

    shown = their_logging.is_progress_bar_enabled()
    their_logging.disable_progress_bar()
    try:
        module, found = AutoModelForCausalLM.from_pretrained(
            folder.path,
            dtype=dtype,
            attn_implementation="eager",
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:  # whatever files that others wrote can set off in transformers
        raise ModelError(f"{folder.path} cannot be loaded by transformers: {error}") from error
    finally:
        if shown:
            their_logging.enable_progress_bar()
    # What is missing would be random numbers.
    if missing := sorted(found["missing_keys"]):
        raise ModelError(
            f"{len(missing)} tensors are missing from the weights in {folder.path}, "
            f"such as {missing[0]}"
        )
    if unused := sorted(found["unexpected_keys"]):
        logger.warning(
            "%d tensors of %s are not used, such as %s", len(unused), folder.path, unused[0]
        )
    return module.eval().requires_grad_(False)


def _tried(
    folder: ModelFolder,
    config: TransformersConfig,
    dtype: torch.dtype,
    device: torch.device,
    module: Any,
) -> TransformersModel:
    embedded = module.get_input_embeddings().num_embeddings
    tokens = trial_tokens(min(embedded, module.config.get_text_config(decoder=True).vocab_size))
    expected = plain_logits(module, tokens, device)
    if expected.shape[-1] > embedded:
        raise ModelError(
            f"model_type {config.model_type!r}: it has logits for {expected.shape[-1]} tokens, but "
            f"takes only {embedded}"
        )
    try:
        layers = record_layers(
            module, torch.tensor(tokens[:2], device=device), config.context_length
        )
    except ModelError as error:
        raise ModelError(f"model_type {config.model_type!r}: {error}") from None
    text = module.config.get_text_config(decoder=True)
    if len(layers) != text.num_hidden_layers:
        raise ModelError(
            f"model_type {config.model_type!r}: {len(layers)} of {text.num_hidden_layers} layers "
            f"have attention that can be replaced by ours"
        )
    model = TransformersModel(
        name=folder.name,
        config=config,
        dtype=dtype,
        device=device,
        vocab_size=expected.shape[-1],
        eos_token_ids=read_eos_token_ids(folder.path),
        sampling=read_sampling(folder.path),
        module=module,
        layers=layers,
        load_seconds=0.0,
    )
    try_over_blocks(model, tokens, expected)
    return model
