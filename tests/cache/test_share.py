"""A second lease on what a first one covers: only where all of it is computed."""

from __future__ import annotations

import pytest

from radix_engine.cache import OwnershipError, PrefixCache
from radix_engine.cache.flat import FlatCache
from tests.cache.flat.use import announce as announce_flat
from tests.cache.flat.use import ids as flat_ids
from tests.cache.flat.use import lease_of as lease_flat
from tests.cache.steps import announce, announce_after
from tests.cache.trees import (
    assert_sound,
    hold,
    ids,
    lease_nothing,
    lease_of,
    make_cache,
    publish,
    stored,
)


def assert_refused(cache: PrefixCache, lease: object) -> None:
    with pytest.raises(OwnershipError, match="computed, can be leased again"):
        cache.share(lease)  # type: ignore[arg-type]


def test_a_shared_lease_covers_the_same_and_each_is_given_back_by_itself() -> None:
    cache = make_cache(16, 4)
    first = hold(cache, ids(12, 1))
    assert cache.sole_tokens(first) == 12
    second = cache.share(first)
    assert second.blocks() == first.blocks()
    assert (second.num_tokens, cache.sole_tokens(first)) == (12, 0)
    publish(cache, second, [*ids(12, 1), *ids(4, 2)])
    publish(cache, first, [*ids(12, 1), *ids(4, 3)])
    assert_sound(cache, [first, second])
    cache.release(first)
    assert_sound(cache, [second])
    assert cache.evict(16) == 1
    assert stored(cache, [*ids(12, 1), *ids(4, 2)]) == 16
    cache.release(second)
    assert cache.evict(16) == 4
    assert_sound(cache)


def test_a_lease_of_nothing_can_be_shared() -> None:
    cache = make_cache(16, 4)
    first = lease_nothing(cache)
    second = cache.share(first)
    publish(cache, second, ids(8, 1))
    assert_sound(cache, [first, second])


def test_a_released_lease_and_one_in_flight_are_refused() -> None:
    cache = make_cache(16, 4)
    lease = announce(cache, ids(8, 1))
    assert_refused(cache, lease)
    cache.commit(lease)
    cache.release(cache.share(lease))
    cache.release(lease)
    assert_refused(cache, lease)
    assert_sound(cache)


@pytest.mark.parametrize("grown", [False, True])
def test_a_lease_on_what_another_has_in_flight_is_refused_until_that_is_computed(
    grown: bool,
) -> None:
    cache = make_cache(16, 4)
    if grown:
        owner = hold(cache, ids(4, 1))
        assert announce_after(cache, owner, ids(12, 1))
    else:
        owner = announce(cache, ids(12, 1))
    attached = lease_of(cache, ids(13, 1))
    assert attached.in_flight_tokens == 0
    assert_refused(cache, attached)
    assert_sound(cache, [owner, attached])
    cache.commit(owner)
    again = cache.share(attached)
    assert_sound(cache, [owner, attached, again])


def test_a_broken_lease_is_refused() -> None:
    cache = make_cache(16, 4)
    owner = announce(cache, ids(12, 1))
    attached = lease_of(cache, ids(13, 1))
    cache.release(owner)
    assert cache.is_broken(attached)
    assert_refused(cache, attached)
    cache.release(attached)
    assert_sound(cache)


def test_the_flat_index_refuses_the_same() -> None:
    cache = FlatCache(16, 4)
    owner = announce_flat(cache, flat_ids(12, 1))
    attached = lease_flat(cache, flat_ids(13, 1))
    for lease in (owner, attached):
        with pytest.raises(OwnershipError, match="computed, can be leased again"):
            cache.share(lease)
    cache.commit(owner)
    leases = [owner, attached, cache.share(owner), cache.share(attached)]
    assert cache.audit([], leases) == []
    assert [lease.num_tokens for lease in leases] == [12] * 4
