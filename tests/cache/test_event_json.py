"""Events as JSON, and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.cache.block_hash import block_hashes
from radix_engine.cache.event_hub import EventHub
from radix_engine.cache.event_json import from_json, to_json
from radix_engine.cache.events import ALL, Cleared, Event, Removed, Stored
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.token_run import TOKEN_BYTES, pack, unpack
from tests.cache.telling import (
    ALICE,
    SIZE,
    store,
)

HASH = st.binary(min_size=32, max_size=32)
NAMES = st.none() | st.text(min_size=1, max_size=4)
ANY_NAMESPACE = st.builds(Namespace, NAMES, NAMES, NAMES, st.integers(0, 2**40))
NUMBERS = st.integers(0, 2**62)
STREAMS = st.text(min_size=1, max_size=4)


@st.composite
def stored_events(draw: st.DrawFn) -> Stored:
    hashes = draw(st.lists(HASH, min_size=1, max_size=3))
    ids = st.integers(-(2**31), 2**31 - 1)
    tokens = draw(st.lists(ids, min_size=len(hashes) * SIZE, max_size=len(hashes) * SIZE))
    blocks = draw(st.just(()) | st.just(tuple(range(7, 7 + len(hashes)))))
    namespace, parent = draw(ANY_NAMESPACE), draw(HASH)
    numbers, joined = draw(NUMBERS), b"".join(hashes)
    return Stored(numbers, namespace, parent, pack(tokens), blocks, joined, stream=draw(STREAMS))


REMOVED = st.builds(
    Removed, NUMBERS, ANY_NAMESPACE, st.lists(HASH, min_size=1).map(b"".join), stream=STREAMS
)
CLEARED = st.builds(Cleared, NUMBERS, stream=STREAMS)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(event=st.one_of(stored_events(), REMOVED, CLEARED))
def test_an_event_is_the_same_after_a_way_through_json(event: Event) -> None:
    assert from_json(json.loads(json.dumps(to_json(event)))) == event


def test_events_in_json_are_plain_for_readers_in_other_languages() -> None:
    hub = EventHub(SIZE, new_identity=lambda: "4e1d")
    stream = hub.subscribe(ALL)
    one, two = store(hub, ALICE, [1, 2, 300, 4], first_block=6)
    hub.removed(ALICE, two)
    hub.cleared()
    namespace = {"tenant": "alice", "salt": None, "adapter": None, "weights": 0}
    assert [to_json(event) for event in stream.since(1)] == [
        {
            "type": "stored",
            "stream": "4e1d",
            "sequence": 1,
            "namespace": namespace,
            "parent": ALICE.digest().hex(),
            "tokens": [1, 2, 300, 4],
            "blocks": [6, 7],
            "hashes": [one.hex(), two.hex()],
        },
        {
            "type": "removed",
            "stream": "4e1d",
            "sequence": 2,
            "namespace": namespace,
            "hashes": [two.hex()],
        },
        {"type": "cleared", "stream": "4e1d", "sequence": 3},
    ]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"type": "moved"}, "type must be stored, removed or cleared, not 'moved'"),
        ({"stream": None}, "stream must be a text that is not empty"),
        ({"stream": ""}, "stream must be a text that is not empty"),
        ({"stream": 7}, "stream must be a text that is not empty"),
        ({"sequence": "1"}, "sequence must be"),
        ({"sequence": True}, "sequence must be"),
        ({"sequence": -1}, "sequence must be"),
        ({"namespace": None}, "namespace must be"),
        ({"namespace": {"tenant": "t", "salt": None, "weights": 0}}, "adapter must be"),
        ({"parent": "00"}, "parent must be hashes of 64 hex digits"),
        ({"parent": "zz" * 32}, "parent must be"),
        ({"hashes": []}, "hashes must name at least one block"),
        ({"hashes": [7]}, "hashes must be"),
        ({"hashes": "ab" * 32}, "hashes must be a list"),
        ({"tokens": [1]}, "1 tokens do not fill 2 blocks"),
        ({"tokens": [1, 2, 3, 2**31]}, "tokens must be int32"),
        ({"tokens": [1, 2, 3, "4"]}, "tokens must be whole numbers"),
        ({"blocks": [1]}, "blocks has 1 ids for 2 hashes"),
    ],
)
def test_json_that_is_no_event_is_refused_with_the_fields_name(
    changes: dict[str, object], complaint: str
) -> None:
    joined = block_hashes(ALICE.digest(), pack([1, 2, 3, 4]), SIZE)
    event = Stored(1, ALICE, ALICE.digest(), pack([1, 2, 3, 4]), (0, 1), joined, stream="s")
    assert from_json(to_json(event)) == event
    assert len(event.run) // TOKEN_BYTES == len(unpack(event.run)) == 4
    with pytest.raises(ValueError, match=complaint):
        from_json({**to_json(event), **changes})
