"""What a GPU's times come to, by hand."""

from __future__ import annotations

import pytest
import torch

from workloads.gpu import arithmetic
from workloads.gpu.arithmetic import DecodeCase, HostTime
from workloads.gpu.shapes import llama_shape

SMALL = llama_shape(
    num_layers=3,
    hidden_size=4,
    num_heads=2,
    num_kv_heads=1,
    head_dim=2,
    intermediate_size=5,
    vocab_size=10,
    context_length=64,
)
# A layer's weights: qkv 4 x (4 + 2 + 2) = 32, output 4 x 4 = 16, MLP 3 x 4 x 5 = 60.
LAYER = 108


def test_a_decode_step_reads_all_weights_but_the_embedding_and_all_k_and_v() -> None:
    # In bf16: 3 layers, and a head of 40; norms in float32: 3 x 8 and 4; K and V of a token: 3 x 4.
    weights = (3 * LAYER + 40) * 2 + 28 * 4
    case = DecodeCase(batch=5, context=7)
    assert arithmetic.decode_bytes(SMALL, torch.bfloat16, case) == weights + 35 * 12 * 2


def test_llama_8b_has_its_weights() -> None:
    # 8.03e9 in all, of which 0.525e9 are the embedding's; K and V of a token are 128 KiB.
    read = arithmetic.decode_bytes(llama_shape(), torch.bfloat16, DecodeCase(1, 1))
    assert read == pytest.approx(2 * 7.505e9, rel=1e-3)
    assert llama_shape().kv_bytes_per_token(torch.bfloat16) == 128 * 1024


def test_a_prompts_operations_are_two_a_weight_and_four_a_pair_and_head_dimension() -> None:
    # 3 tokens see 1 + 2 + 3 = 6 keys; 2 heads of 2; the head's 40 weights once.
    assert arithmetic.prompt_operations(SMALL, 3) == 3 * (2 * 3 * LAYER + 4 * 4 * 6) + 2 * 40


def test_cases_that_do_not_fit_are_left_out() -> None:
    cases = [DecodeCase(2, 16), DecodeCase(2, 17), DecodeCase(5, 1)]
    assert [case.blocks(16) for case in cases] == [2, 4, 5]
    assert arithmetic.fitting(cases, 4, 16) == (cases[:2], cases[2:])
    assert arithmetic.fitting(cases, 1, 16) == ([], cases)


def test_rates_and_times() -> None:
    # A copy of 1 GB in 1 ms moves 2 GB in it.
    rate = arithmetic.copy_rate(10**9, 1.0)
    assert rate == 2e12
    assert arithmetic.least_ms(4 * 10**9, rate) == 2.0
    assert arithmetic.share_of_rate(5 * 10**11, 2.0, 10**15) == 0.25


def test_only_what_layers_take_is_scaled() -> None:
    assert arithmetic.scaled_ms(10.0, 2.0, 8, 32) == 34.0
    assert arithmetic.scaled_ms(10.0, 10.5, 8, 32) == 10.5


def test_host_time_is_what_shows_beside_the_devices() -> None:
    time = HostTime(device_ms=5.0, ahead_ms=5.5, alone_ms=8.0)
    assert (time.visible_ahead_ms, time.visible_alone_ms) == (0.5, 3.0)
    assert HostTime(5.0, 4.9, 4.8).visible_ahead_ms == 0.0
    assert HostTime(5.0, 4.9, 4.8).visible_alone_ms == 0.0
