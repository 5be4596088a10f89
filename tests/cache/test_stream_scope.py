"""Whom the stream of a scope tells of what."""

from __future__ import annotations

from radix_engine.cache.event_hub import EventHub
from radix_engine.cache.events import ALL, Stored
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.snapshot import snapshot
from radix_engine.cache.token_run import pack
from tests.cache.telling import PUBLIC, SIZE, named, store


def test_what_a_salt_without_a_tenant_hides_is_told_to_operators_only() -> None:
    hub = EventHub(SIZE, new_identity=named())
    nobody, everything = hub.subscribe(None), hub.subscribe(ALL)
    secret = Namespace(salt="s")
    hashes = store(hub, secret, [1, 2, 3, 4])
    hub.removed(secret, hashes[0])
    store(hub, PUBLIC, [1, 2])
    assert [event.sequence for event in everything.since(1)] == [1, 2, 3]
    (told,) = nobody.since(1)
    assert isinstance(told, Stored)
    assert (told.sequence, told.namespace) == (1, PUBLIC)
    entries = [(space, bytes(32), pack([1, 2]), (0,), bytes(32)) for space in (secret, PUBLIC)]
    assert [entry.namespace for entry in snapshot(nobody, entries).stored] == [PUBLIC]
    assert [entry.namespace for entry in snapshot(everything, entries).stored] == [secret, PUBLIC]
