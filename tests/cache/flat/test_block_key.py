"""A key stands for all tokens up to the end of its block, and for whose they are."""

from __future__ import annotations

import sys
from hashlib import sha256

import pytest
import xxhash

from radix_engine.cache.flat.block_key import HashName, chain, chain_start, digest_function
from radix_engine.cache.namespace import DEFAULT, Namespace
from radix_engine.cache.token_run import pack

NAMES: list[HashName] = ["sha256", "xxh3_128"]


def keys(
    tokens: list[int], size: int = 4, namespace: Namespace = DEFAULT, name: HashName = "sha256"
) -> list[bytes]:
    run = pack(tokens)
    return list(chain(digest_function(name), chain_start(namespace), run, size * 4, len(run)))


def test_a_key_is_the_hash_of_its_parents_key_and_its_own_tokens() -> None:
    first = sha256(DEFAULT.digest() + pack([1, 2, 3, 4])).digest()
    second = sha256(first + pack([5, 6, 7, 8])).digest()
    assert keys([1, 2, 3, 4, 5, 6, 7, 8]) == [first, second]


def test_xxh3_keys_are_chained_in_the_same_way() -> None:
    first = xxhash.xxh3_128_digest(DEFAULT.digest() + pack([1, 2, 3, 4]))
    second = xxhash.xxh3_128_digest(first + pack([5, 6, 7, 8]))
    assert keys([1, 2, 3, 4, 5, 6, 7, 8], name="xxh3_128") == [first, second]
    assert len(first) == 16


@pytest.mark.parametrize("name", NAMES)
def test_a_partial_tail_has_no_key(name: HashName) -> None:
    assert len(keys([1, 2, 3, 4, 5, 6, 7], name=name)) == 1
    assert keys([1, 2, 3], name=name) == []
    assert keys([], name=name) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_same_tokens_after_another_past_have_another_key(name: HashName) -> None:
    here = keys([1, 2, 3, 4, 5, 6, 7, 8], name=name)
    there = keys([9, 9, 9, 9, 5, 6, 7, 8], name=name)
    assert here[1] != there[1]


@pytest.mark.parametrize("name", NAMES)
def test_equal_beginnings_have_equal_keys(name: HashName) -> None:
    here = keys([1, 2, 3, 4, 5, 6, 7, 8, 9], name=name)
    there = keys([1, 2, 3, 4, 5, 6, 7, 0], name=name)
    assert here[0] == there[0]
    assert here[1] != there[1]


@pytest.mark.parametrize("name", NAMES)
def test_namespaces_share_no_key(name: HashName) -> None:
    mine = keys([1, 2, 3, 4, 5, 6, 7, 8], namespace=Namespace(tenant="a"), name=name)
    yours = keys([1, 2, 3, 4, 5, 6, 7, 8], namespace=Namespace(tenant="b"), name=name)
    assert not set(mine) & set(yours)


def test_keys_come_one_at_a_time_so_that_a_miss_ends_the_hashing() -> None:
    hashed = []

    def digest(data: bytes) -> bytes:
        hashed.append(data)
        return data[-4:]

    run = pack(range(40))
    first = next(iter(chain(digest, b"", run, 16, len(run))))
    assert first == pack([3])
    assert hashed == [pack(range(4))]


def test_an_unknown_hash_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="hash_name must be 'sha256' or 'xxh3_128', not 'md5'"):
        digest_function("md5")  # type: ignore[arg-type]


def test_a_missing_package_is_named_only_when_its_hash_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "xxhash", None)
    assert digest_function("sha256")(b"") == sha256(b"").digest()
    with pytest.raises(ImportError, match="'xxh3_128' needs the package xxhash"):
        digest_function("xxh3_128")
