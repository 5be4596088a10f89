"""Each rank has an equal part, together they have all, and what cannot be divided is refused."""

from __future__ import annotations

import pytest

from radix_engine.model.errors import ModelError
from radix_engine.parallel.shard import local_config, shard_of, working_sizes
from tests.parallel.helpers import llama_config


def test_the_second_of_four_ranks_has_the_second_quarter() -> None:
    shard = shard_of(llama_config(), 1, 4)
    assert shard.query_heads == range(2, 4)
    assert shard.kv_heads == range(1, 2)
    assert shard.inner == range(24, 48)
    assert shard.vocabulary == range(25, 50)


def test_one_process_has_all() -> None:
    shard = shard_of(llama_config(), 0, 1)
    assert shard.query_heads == range(8)
    assert shard.kv_heads == range(4)
    assert shard.inner == range(96)
    assert shard.vocabulary == range(100)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_the_ranks_parts_follow_one_another_and_make_the_whole(size: int) -> None:
    config = llama_config(num_key_value_heads=8)
    shards = [shard_of(config, rank, size) for rank in range(size)]
    assert [head for shard in shards for head in shard.query_heads] == list(range(8))
    assert [head for shard in shards for head in shard.kv_heads] == list(range(8))
    assert [column for shard in shards for column in shard.inner] == list(range(96))
    padded = 104 if size == 8 else 100
    assert [row for shard in shards for row in shard.vocabulary] == list(range(padded))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_query_head_is_where_its_kv_head_is(size: int) -> None:
    config = llama_config()  # two query heads share a KV head
    for rank in range(size):
        shard = shard_of(config, rank, size)
        assert {head // 2 for head in shard.query_heads} == set(shard.kv_heads)


def test_a_vocabulary_that_does_not_divide_is_padded() -> None:
    config = llama_config(vocab_size=101)
    assert shard_of(config, 0, 4).vocabulary == range(0, 26)
    assert shard_of(config, 3, 4).vocabulary == range(78, 104)
    assert local_config(config, 4).vocab_size == 101


def test_a_ranks_configuration_has_fewer_heads_and_a_narrower_mlp_and_all_else_the_same() -> None:
    config = llama_config()
    local = local_config(config, 4)
    assert (local.num_heads, local.num_kv_heads, local.intermediate_size) == (2, 1, 24)
    assert (local.hidden_size, local.head_dim, local.vocab_size) == (64, 8, 100)
    assert local.windows == config.windows


@pytest.mark.parametrize(
    ("fields", "size", "message"),
    [
        (
            {"num_attention_heads": 6, "num_key_value_heads": 6, "head_dim": 8},
            4,
            "^num_attention_heads 6 and num_key_value_heads 6 cannot be divided evenly among 4 "
            "processes; numbers of processes that work for this model: 1, 2, 3, 6$",
        ),
        ({"num_key_value_heads": 2}, 4, "^num_key_value_heads 2 cannot.*model: 1, 2$"),
        ({"intermediate_size": 90}, 4, "^intermediate_size 90 cannot.*model: 1, 2$"),
        ({"num_key_value_heads": 1}, 2, "^num_key_value_heads 1 cannot.*model: 1$"),
        ({}, 3, "^num_attention_heads 8 and num_key_value_heads 4 cannot.*model: 1, 2, 4$"),
        ({}, 0, "at least 1 process, not 0"),
    ],
)
def test_what_cannot_be_divided_is_refused_by_name(
    fields: dict[str, int], size: int, message: str
) -> None:
    config = llama_config(**fields)
    with pytest.raises(ModelError, match=message):
        local_config(config, size)
    if size:
        with pytest.raises(ModelError, match=message):
            shard_of(config, 0, size)


def test_all_sizes_that_work_are_known() -> None:
    assert working_sizes(llama_config()) == [1, 2, 4]
    assert working_sizes(llama_config(num_key_value_heads=8)) == [1, 2, 4, 8]
    assert working_sizes(llama_config(intermediate_size=97)) == [1]


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_that_does_not_exist_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match=f"between 0 and 1, not {rank}"):
        shard_of(llama_config(), rank, 2)
