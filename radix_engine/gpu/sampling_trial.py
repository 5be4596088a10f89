"""Whether FlashInfer's sampling works on this machine: told once, when a model is loaded."""

from __future__ import annotations

import logging
from typing import Any

import torch

from radix_engine.gpu.sampling import FlashInferDrawer
from radix_engine.model.sampling_draw import Draw, Drawer
from radix_engine.model.sampling_params import SamplingParams

logger = logging.getLogger(__name__)

_LEAST_WIDTH = 12
_LONGEST_LINE = 300

# Tokens as places in `_ids`, with probabilities of 0.3, 0.1, 0.1, 0.1 and 0.4; all others have
# none. The numbers lie far from where another token begins.
_PROBABILITIES = (0.3, 0.1, 0.1, 0.1, 0.4)
_CASES: tuple[tuple[SamplingParams, float, int], ...] = (
    (SamplingParams(), 0.45, 2),
    (SamplingParams(temperature=0.5), 0.375, 2),  # 0.09, 0.01, 0.01, 0.01, 0.16 of 0.28
    (SamplingParams(min_p=0.5), 0.55, 4),
    (SamplingParams(top_k=4), 0.95, 2),
    (SamplingParams(top_p=0.75), 0.9, 1),
    (SamplingParams(top_k=4, top_p=0.95), 0.94, 2),
)


def flashinfer_drawer(flashinfer: Any, device: torch.device, vocab_size: int) -> Drawer | None:
    """What draws random tokens with ``flashinfer``, the module, on this device.

    It is tried first, which may compile its kernels: minutes, the first time. Where it is missing,
    refuses or draws a wrong token, this is None, for torch, and one line in the log says why.
    """
    drawer = FlashInferDrawer(flashinfer)
    try:
        problem = _problem(drawer, device, vocab_size)
    except Exception as error:  # whatever a compiler or a kernel says
        problem = f"{type(error).__name__}: {error}"
    if problem is None:
        return drawer
    line = " ".join(problem.split())[:_LONGEST_LINE]
    logger.warning("Random tokens are drawn by torch, since FlashInfer's sampling fails: %s", line)
    return None


@torch.inference_mode()
def _problem(drawer: Drawer, device: torch.device, vocab_size: int) -> str | None:
    """What is wrong with tokens that are known; over as many logits as the model has, since the
    kernels differ by that."""
    width = max(vocab_size, _LEAST_WIDTH)
    ids = (0, width // 4, width // 3, width // 2, width - 1)
    logits = torch.full((len(_CASES), width), -100.0)
    logits[:, list(ids)] = torch.tensor(_PROBABILITIES).log()
    draws = [Draw(params, number) for params, number, _ in _CASES]
    found = drawer(logits.to(device), draws).tolist()
    right = [ids[token] for _, _, token in _CASES]
    return None if found == right else f"it drew the tokens {found}, not {right}"
