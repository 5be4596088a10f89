"""Stop strings over HTTP: found over the edges of tokens, never shown, and nothing is held long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby

import pytest
from fastapi.testclient import TestClient

from server import Engine
from tests.server.forcing import force
from tests.server_http.asking import ALL_PATHS, STREAMED, asked
from tests.server_http.real import client_of, tiny_engine
from tests.tiny import IM_END

TEXT = "alpha beta gamma delta"
SAID = "Say them."
STOPS = pytest.mark.parametrize(
    ("stops", "text", "matched"),
    [
        (["beta gamma"], "alpha ", "beta gamma"),
        (["ga"], "alpha beta ", "ga"),
        (["zzz"], TEXT, None),
        (["delta!"], TEXT, None),
        (["\n"], TEXT, None),
        (["zzz", "mma d", "delta"], "alpha beta ga", "mma d"),
    ],
    ids=str,
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with tiny_engine(tmp_path_factory.mktemp("models") / "tiny") as engine:
        yield engine


@pytest.fixture(scope="module")
def client(engine: Engine) -> Iterator[TestClient]:
    with client_of(engine) as client:
        yield client


def will_say_it(
    engine: Engine, client: TestClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> list[int]:
    """The answer's tokens, of which none but the end is a word of the text."""
    length = asked(client, path, SAID, stream=False, max_tokens=1).prompt_tokens
    tokens = engine.text.encode(TEXT)
    assert 14 < len(tokens) < 24
    force(engine, monkeypatch, length, [*tokens, IM_END])
    return tokens


@ALL_PATHS
@STREAMED
@STOPS
def test_the_text_ends_before_the_stop_string_which_is_told(
    engine: Engine,
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    stream: bool,
    stops: list[str],
    text: str,
    matched: str | None,
) -> None:
    will_say_it(engine, client, monkeypatch, path)
    answer = asked(client, path, SAID, stream=stream, stop=stops, max_tokens=30).only
    assert (answer.text, answer.finish, answer.stop) == (text, "stop", matched)


def shown_after(so_far: str, stops: Sequence[str]) -> str:
    """What of a text may be shown while more of it may come."""
    found = [so_far.index(stop) for stop in stops if stop in so_far]
    if found:
        return so_far[: min(found)]
    held = (
        length
        for length in range(len(so_far), 0, -1)
        for stop in stops
        if length < len(stop) and stop.startswith(so_far[-length:])
    )
    return so_far[: len(so_far) - next(held, 0)]


@ALL_PATHS
@STOPS
def test_a_stream_holds_back_what_may_begin_a_stop_string_and_no_more(
    engine: Engine,
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    stops: list[str],
    text: str,
    matched: str | None,
) -> None:
    tokens = will_say_it(engine, client, monkeypatch, path)
    so_far = [engine.text.decode(tokens[:count]) for count in range(1, len(tokens) + 1)]
    expected = [shown_after(each, stops) for each in so_far] + [text]
    answer = asked(client, path, SAID, stream=True, stop=stops, max_tokens=30).only
    assert list(accumulate(answer.pieces)) == [each for each, _ in groupby(expected) if each]


@ALL_PATHS
@STREAMED
def test_what_was_held_back_comes_when_the_limit_ends_the_answer(
    engine: Engine,
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    stream: bool,
) -> None:
    tokens = will_say_it(engine, client, monkeypatch, path)
    for count in range(1, len(tokens)):
        sent = {"stop": ["alpha beta gamma delta!"], "max_tokens": count}
        answer = asked(client, path, SAID, stream=stream, **sent).only
        expected = engine.text.decode(tokens[:count])
        assert (answer.text, answer.finish, answer.stop) == (expected, "length", None)
