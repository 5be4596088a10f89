"""Two processes compute what one computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.model.batch import Span
from radix_engine.model.errors import ModelError
from radix_engine.model.source import ModelFolder
from radix_engine.parallel.errors import ParallelError
from radix_engine.parallel.group import Group
from radix_engine.parallel.runner import load_parallel
from tests.model.gguf_writing import write_gguf
from tests.model.helpers import random_tokens
from tests.parallel.helpers import (
    all_processes,
    make_nowhere,
    one_process,
    same_logits,
    tiny_model,
)
from tests.tiny import make_tiny_folder

MODELS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"tie_word_embeddings": False, "num_attention_heads": 8, "num_key_value_heads": 2}),
    ("llama", {"attention_bias": True, "mlp_bias": True}),
    ("llama", {"vocab_size": 501, "num_key_value_heads": 4}),
    ("llama", {"vocab_size": 501, "tie_word_embeddings": False}),
    ("mistral", {"sliding_window": 24}),
    ("qwen2", {}),
    ("qwen2", {"tie_word_embeddings": False}),
    ("qwen3", {}),
]


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with Group(2) as group:
        yield group
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("model_type", "fields"), MODELS)
def test_a_greedy_answer_is_the_same(
    group: Group, tmp_path: Path, model_type: str, fields: dict[str, Any]
) -> None:
    folder = tiny_model(tmp_path, model_type, **fields)
    one, two = one_process(folder), all_processes(group, folder)
    tokens, table = random_tokens(37), [5, 3, 60, 9]
    position = 0
    for _ in range(17):
        span = Span(tokens[position:], position, table, 1)
        expected = one.forward([span])
        logits = two.forward([span])
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)
        assert int(logits.argmax()) == int(expected.argmax())
        position = len(tokens)
        tokens.append(int(expected.argmax()))


def test_a_model_in_a_gguf_file_is_divided_like_any_other(group: Group, tmp_path: Path) -> None:
    # 48 of 96 columns a rank: the cut lies inside a block of 32 weights.
    path = make_tiny_folder(tmp_path / "tiny", intermediate_size=96, tokenizer=True)
    file = write_gguf(tmp_path / "tiny.gguf", path, kind="Q8_0")
    folder = ModelFolder(path, "tiny", file)
    one, two = one_process(folder), all_processes(group, folder)
    same_logits(one, two, [Span(random_tokens(20), 0, [1, 2], 20)])


def test_chunks_decodes_and_prompts_in_one_step(group: Group, tmp_path: Path) -> None:
    folder = tiny_model(tmp_path)
    one, two = one_process(folder), all_processes(group, folder)
    first, second, third = (random_tokens(count, count) for count in (50, 30, 9))
    same_logits(one, two, [Span(first[:21], 0, [4, 2], 0)])
    same_logits(one, two, [Span(first[21:30], 21, [4, 2], 1), Span(second[:29], 0, [7, 8], 0)])
    logits = same_logits(
        one,
        two,
        [
            Span(first[30:], 30, [4, 2, 11, 1], 3),
            Span(second[29:], 29, [7, 8], 1),
            Span(third, 0, [20], 9),
            Span(third[:4], 0, [21], 0),
        ],
    )
    assert logits.shape == (13, 512)


def test_a_step_that_wants_no_logits_gives_none(group: Group, tmp_path: Path) -> None:
    two = all_processes(group, tiny_model(tmp_path))
    assert two.forward([Span([1, 2], 0, [0], 0)]).shape == (0, 512)
    assert two.forward([]).shape == (0, 512)


def test_rows_are_copied_on_all_ranks(group: Group, tmp_path: Path) -> None:
    two = all_processes(group, tiny_model(tmp_path))
    tokens = random_tokens(30)
    expected = two.forward([Span(tokens, 0, [0, 1], 1)])
    two.copy_rows([])
    two.copy_rows([(0, 5, 16), (1, 6, 13)])
    logits = two.forward([Span(tokens[29:], 29, [5, 6], 1)])
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


def test_half_precision_weights_give_nearly_the_same(group: Group, tmp_path: Path) -> None:
    folder = tiny_model(tmp_path)
    one, two = one_process(folder, torch.bfloat16), all_processes(group, folder, torch.bfloat16)
    same_logits(one, two, [Span(random_tokens(30), 0, [0, 1], 30)], tolerance=0.03)


def test_the_memory_of_all_ranks_is_that_of_one_process(group: Group, tmp_path: Path) -> None:
    folder = tiny_model(tmp_path)
    one, two = one_process(folder).memory, all_processes(group, folder).memory
    assert (two.num_blocks, two.block_size) == (64, 16)
    assert two.bytes_per_block == one.bytes_per_block


@pytest.mark.parametrize(
    ("span", "message"),
    [
        (Span([], 0, [0], 1), "at least one token"),
        (Span([1], 0, [0], 2), "num_logits must be"),
        (Span([1], 1024, list(range(64)), 1), "context of 1024"),
        (Span([1] * 17, 0, [0], 1), "needs 2 blocks"),
        (Span([1], 0, [64], 1), "outside 0 to 63"),
        (Span([512], 0, [0], 1), "outside 0 to 511"),
    ],
)
def test_a_step_that_cannot_be_run_is_refused_and_the_next_one_runs(
    group: Group, tmp_path: Path, span: Span, message: str
) -> None:
    two = all_processes(group, tiny_model(tmp_path))
    good = Span([1, 2, 3], 0, [0], 1)
    expected = two.forward([good])
    with pytest.raises(ValueError, match=message):
        two.forward([good, span])
    assert torch.equal(two.forward([good]), expected)


def test_a_copy_that_cannot_be_is_refused_and_the_next_one_is_made(
    group: Group, tmp_path: Path
) -> None:
    two = all_processes(group, tiny_model(tmp_path))
    with pytest.raises(ValueError, match="rows must lie between 1 and 16, not 17"):
        two.copy_rows([(0, 1, 17)])
    expected = two.forward([Span([1, 2, 3], 0, [0], 1)])
    two.copy_rows([(0, 9, 2)])
    logits = two.forward([Span([3], 2, [9], 1)])
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


def test_a_model_that_cannot_be_divided_is_refused_and_another_one_loads(
    group: Group, tmp_path: Path
) -> None:
    odd = tiny_model(tmp_path / "odd", num_attention_heads=3, num_key_value_heads=3)
    with pytest.raises(ModelError, match="num_attention_heads 3 and num_key_value_heads 3 cannot"):
        load_parallel(group, odd, torch.float32)
    two = all_processes(group, tiny_model(tmp_path / "even"))
    assert two.forward([Span([1], 0, [0], 1)]).shape == (1, 512)


def test_a_model_with_damaged_files_is_refused_and_another_one_loads(
    group: Group, tmp_path: Path
) -> None:
    damaged = tiny_model(tmp_path / "damaged")
    (damaged.path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="cannot be read"):
        load_parallel(group, damaged, torch.float32)
    two = all_processes(group, tiny_model(tmp_path / "whole"))
    assert two.forward([Span([1], 0, [0], 1)]).shape == (1, 512)


def test_memory_that_one_rank_cannot_have_is_refused_by_its_name(
    group: Group, tmp_path: Path
) -> None:
    folder = tiny_model(tmp_path)
    with pytest.raises(ParallelError, match=r"(?s)^rank 1 refused.*no room for 64 blocks"):
        all_processes(group, folder, make_runner=make_nowhere)
    two = all_processes(group, folder)
    assert two.forward([Span([1], 0, [0], 1)]).shape == (1, 512)


def test_a_runner_whose_model_is_gone_computes_nothing(group: Group, tmp_path: Path) -> None:
    folder = tiny_model(tmp_path)
    old = all_processes(group, folder)
    new = all_processes(group, folder)
    with pytest.raises(ParallelError, match="has loaded something else"):
        old.forward([Span([1], 0, [0], 1)])
    with pytest.raises(ParallelError, match="has loaded something else"):
        old.copy_rows([(0, 1, 1)])
    assert new.forward([Span([1], 0, [0], 1)]).shape == (1, 512)


def test_there_is_one_group_at_a_time(group: Group) -> None:
    with pytest.raises(ParallelError, match="in a process group already"):
        Group(2)
    assert len(group.pids) == 1
