"""What a request that is not to store leaves behind over HTTP: nothing, whole or streamed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from scheduler import Limits
from server import Engine
from tests.server_http.asking import ALL_PATHS, STREAMED, asked
from tests.server_http.real import client_of, tiny_engine

SAID = "A prompt that is much longer than three blocks of sixteen tokens, of one tenant."
HEAD = SAID[:60]


@pytest.fixture(scope="module", params=[16, None], ids=["chunked", "in one step"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Engine]:
    folder: Path = tmp_path_factory.mktemp("models") / "tiny"
    limits = Limits() if request.param is None else Limits(request.param, 4)
    with tiny_engine(folder, 128, limits) as engine:
        yield engine


@pytest.fixture
def client(engine: Engine) -> Iterator[TestClient]:
    with client_of(engine) as client:
        client.post("/flush_cache")
        yield client


def shape(engine: Engine) -> list[Any]:
    """The nodes of the tree: their texts and how many tokens each has."""
    tree: Any = engine.tree()
    return sorted((node["tokens"], node["text"]) for node in tree["nodes"])


@ALL_PATHS
@STREAMED
def test_mode_none_reads_nothing_and_adds_nothing(
    client: TestClient, engine: Engine, path: str, stream: bool
) -> None:
    asked(client, path, HEAD, stream=stream)
    before = shape(engine)
    for _ in range(2):
        answer = asked(client, path, SAID, stream=stream, cache_mode="none")
        assert answer.cached_tokens == 0
        assert shape(engine) == before
    cold = asked(client, path, SAID, stream=stream)
    assert 0 < cold.cached_tokens < cold.prompt_tokens - 16, "only the head was there"


@ALL_PATHS
@STREAMED
def test_mode_read_only_hits_and_adds_nothing(
    client: TestClient, engine: Engine, path: str, stream: bool
) -> None:
    asked(client, path, HEAD, stream=stream)
    tokens = sum(count for count, _ in shape(engine))
    first, again = (
        asked(client, path, SAID, stream=stream, cache_mode="read-only") for _ in range(2)
    )
    assert first.cached_tokens == again.cached_tokens > 32
    assert first.cached_tokens < first.prompt_tokens - 16
    assert sum(count for count, _ in shape(engine)) == tokens
    assert first.only.text == again.only.text


@ALL_PATHS
@STREAMED
def test_only_the_same_salt_is_served(client: TestClient, path: str, stream: bool) -> None:
    for first, second in (("one", "two"), ("one", None), (None, "one")):
        client.post("/flush_cache")
        salts = ({"cache_salt": first}, {"cache_salt": second})
        counts = [
            asked(client, path, SAID, stream=stream, **salt).cached_tokens
            for salt in (*salts, *salts)
        ]
        assert counts[:2] == [0, 0]
        assert min(counts[2:]) > 32
