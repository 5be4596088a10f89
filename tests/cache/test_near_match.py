"""A look-up that goes on from an earlier match finds what one from the start finds."""

from __future__ import annotations

import random

import pytest

from radix_engine.cache import Match, Namespace, PrefixCache, pack
from tests.cache.trees import assert_sound, ids, store, take

SIZE = 4


def prompt_of(draw: random.Random) -> list[int]:
    return [
        token for _ in range(draw.randint(0, 8)) for token in ids(SIZE, draw.choice("ab") == "a")
    ]


def common(left: list[int], right: list[int]) -> int:
    count = 0
    while count < min(len(left), len(right)) and left[count] == right[count]:
        count += 1
    return count


@pytest.mark.parametrize("seed", range(30))
def test_it_finds_the_same_however_the_tree_has_changed_since(seed: int) -> None:
    draw = random.Random(seed)
    cache = PrefixCache(24, SIZE, ghost_blocks=draw.choice([0, 6, 60]))
    matches: list[tuple[list[int], Match]] = []
    held = []
    compared = 0
    for _ in range(300):
        prompt = [*prompt_of(draw), *ids(draw.randint(1, 5), 7)]
        whole = cache.match(pack(prompt))
        for other, near in draw.sample(matches, min(3, len(matches))):
            shared = common(prompt, other)
            again = cache.match(pack(prompt), near=near, shared_tokens=shared)
            assert again == whole
            compared += near.num_tokens > 0
        matches.append((prompt, whole))
        chance = draw.random()
        if chance < 0.5:
            lease = cache.lease(whole)
            rest = prompt[lease.num_tokens : len(prompt) // SIZE * SIZE]
            blocks = cache.allocate(len(rest) // SIZE)
            if blocks is not None:
                if draw.random() < 0.3 and cache.announce(lease, pack(rest), blocks):
                    (cache.commit if draw.random() < 0.5 else cache.withdraw)(lease)
                else:
                    cache.publish(lease, pack(rest), blocks)
            held.append(lease)
        elif chance < 0.8 and held:
            cache.release(held.pop(draw.randrange(len(held))))
        elif chance < 0.95:
            cache.evict(draw.randint(1, 5))
        elif chance < 0.97:
            cache.flush()
    assert compared > 100
    assert_sound(cache, held)


def test_what_is_not_shared_is_compared_though_the_node_has_grown_since() -> None:
    cache = PrefixCache(16, SIZE, partial_blocks=False)
    lease = cache.lease(cache.match(pack(ids(9, 1))))
    cache.publish(lease, pack(ids(8, 1)), take(cache, 2))
    near = cache.match(pack(ids(9, 1)))
    cache.publish(lease, pack(ids(16, 1)[8:]), take(cache, 2))  # the same node, longer
    other = [*ids(8, 1), *ids(9, 2)]
    assert cache.match(pack(other), near=near, shared_tokens=8).num_tokens == 8
    assert cache.match(pack(ids(17, 1)), near=near, shared_tokens=8).num_tokens == 16


def test_a_match_of_another_namespace_is_not_gone_on_from() -> None:
    cache = PrefixCache(16, SIZE)
    store(cache, ids(8, 1))
    near = cache.match(pack(ids(9, 1)))
    other = cache.match(pack(ids(9, 1)), Namespace("t"), near=near, shared_tokens=9)
    assert other.num_tokens == 0


def test_whole_blocks_only_leaves_the_rows_out() -> None:
    cache = PrefixCache(16, SIZE)
    store(cache, ids(8, 1))
    assert cache.match(pack(ids(8, 1))).num_tokens == 7
    assert cache.match(pack(ids(8, 1)), rows=False).num_tokens == 4


def test_a_match_from_when_a_path_was_public_does_not_lead_there_any_more() -> None:
    cache = PrefixCache(32, SIZE)
    tenant = Namespace("t")
    for seed in (2, 3):  # nobody's in particular
        store(cache, [*ids(8, 1), *ids(8, seed)])
    cache.mark_public(pack(ids(8, 1)))
    prompt = pack([*ids(8, 1), *ids(9, 2)])
    near = cache.match(prompt, tenant)
    assert near.num_tokens == 8
    cache.unmark_public(pack(ids(8, 1)))
    again = cache.match(prompt, tenant, near=near, shared_tokens=17)
    assert again.num_tokens == 0
