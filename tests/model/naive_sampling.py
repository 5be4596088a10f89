"""One token for one row, in plain Python: what the sampler must agree with exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from radix_engine.model.sampling import uniform
from radix_engine.model.sampling_params import SamplingParams


def naive_logits(
    logits: Sequence[float], params: SamplingParams, prompt: Sequence[int], answer: Sequence[int]
) -> list[float]:
    """Bias, then repetition, frequency and presence penalties."""
    changed = [float(value) for value in logits]
    for token, bias in params.logit_bias.items():
        changed[token] = float(np.float32(changed[token] + bias))
    if not params.penalizes:
        return changed
    for token in range(len(changed)):
        value, times = changed[token], list(answer).count(token)
        if token in prompt or times:
            factor = params.repetition_penalty
            value = value / factor if value > 0 else value * factor
        value -= params.frequency_penalty * times
        value -= params.presence_penalty * (times > 0)
        changed[token] = float(np.float32(value))
    return changed


def naive_token(
    logits: Sequence[float],
    params: SamplingParams,
    seed: int,
    prompt: Sequence[int],
    answer: Sequence[int],
) -> int:
    """The token after ``answer``."""
    values = naive_logits(logits, params, prompt, answer)
    likeliest = sorted(range(len(values)), key=lambda token: (-values[token], token))
    if params.is_greedy:
        return likeliest[0]
    highest = values[likeliest[0]]
    weights = [math.exp((value - highest) / params.temperature) for value in values]
    is_filtered = 0 < params.top_k < len(values) or params.top_p < 1
    left = likeliest if is_filtered else list(range(len(values)))
    left = [token for token in left if weights[token] >= params.min_p]
    if params.top_k > 0:
        left = left[: params.top_k]
    total = math.fsum(weights[token] for token in left)
    if params.top_p < 1:
        nucleus: list[int] = []
        reached = 0.0
        for token in left:
            if nucleus and reached >= params.top_p * total:
                break
            nucleus.append(token)
            reached += weights[token]
        left, total = nucleus, reached
    target = uniform(seed, len(answer)) * total
    reached = 0.0
    for token in left:
        reached += weights[token]
        if reached > target:
            return token
    return left[-1]
