"""Steps with several requests in flight, beside evictions, flushes, public paths and ghosts: the
audit finds nothing wrong, and a mirror follows."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from radix_engine.cache import ALL, DEFAULT, Lease, Namespace, OwnershipError, TreeMirror, pack
from tests.cache.requests import Clock
from tests.cache.steps import SIZE
from tests.cache.telling import follow
from tests.cache.trees import assert_sound, make_cache

SPACES = [DEFAULT, Namespace(tenant="a"), Namespace(tenant="a", salt="s"), Namespace(tenant="b")]
BLOCKS = [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize("ghost_blocks", [0, 3, 10, 60])
@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_steps_leaves_a_sound_tree(ghost_blocks: int, seed: int) -> None:
    draw, clock, live = Random(seed), Clock(), list[Lease]()
    options = {"clock": clock, "ttl": 10.0, "partial_blocks": True, "events": True}
    cache = make_cache(24, SIZE, ghost_blocks=ghost_blocks, **options)
    cache.mark_public(pack([0] * 8))
    stream, mirror, broken = cache.subscribe(ALL), TreeMirror(SIZE), 0
    for _ in range(800):
        kind = draw.randrange(11)
        if kind < 6 and cache.available_blocks >= 6:
            tokens = [t for _ in range(draw.randrange(1, 7)) for t in draw.choice(BLOCKS)]
            match = cache.match(pack([*tokens, 0]), draw.choice(SPACES))
            cache.account(match, pack([*tokens, 0]))
            lease = cache.lease(match)
            live.append(lease)
            run = pack(tokens[lease.num_tokens :])
            blocks = cache.allocate(len(run) // (4 * SIZE))
            if blocks is not None and kind < 2 and not cache.pool.in_flight_blocks:
                cache.publish(lease, run, blocks)
            elif blocks is not None and not cache.announce(lease, run, blocks):
                cache.free(blocks)
        elif kind == 6:
            cache.evict(draw.randrange(1, 12))
        elif kind == 7:
            clock.now += 4.0
            cache.expire()
        elif kind == 8 and draw.random() < 0.1:
            cache.flush()
        elif kind == 9 and live:
            cache.withdraw(draw.choice(live))
            broken += sum(map(cache.is_broken, live))
        elif live:
            with suppress(OwnershipError):  # where it stands on what is in flight
                cache.commit(draw.choice(live))
        while live and draw.random() < len(live) / 12:
            cache.release(live.pop(draw.randrange(len(live))))
        assert_sound(cache, live)
        follow(mirror, stream)
    assert broken, "some were withdrawn with others attached"
    for lease in live:
        cache.release(lease)
    assert cache.detached == []
    assert_sound(cache)
    cache.evict(24)
    assert cache.pool.free_blocks == 24
    follow(mirror, stream)
    assert mirror.blocks() == {}
