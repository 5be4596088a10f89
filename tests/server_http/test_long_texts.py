"""Texts as long as a long context: the tokens are those that a call of the tokenizer gives, whoever
else sends some at the same time, and others do not wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server import Engine, GenerationParams, Output
from server.http.text_threads import LONG_BYTES
from server.outputs import Usage
from tests.server_http.real import CHAT, COMPLETIONS, client_of, tiny_engine
from tests.server_http.running import Running

CHARACTERS = 300_000


class Taking:
    """Stands for an engine's ``submit``: keeps the tokens, and answers at once with none."""

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []
        self._lock = threading.Lock()

    def __call__(
        self,
        prompt: Sequence[int],
        params: GenerationParams,
        on_output: Callable[[Output], None],
    ) -> int:
        with self._lock:
            self.prompts.append(list(prompt))
        on_output(Output(1, "", (), "stop", Usage(len(prompt), 0, 0)))
        return 1


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with tiny_engine(tmp_path_factory.mktemp("models") / "tiny") as engine:
        yield engine


@pytest.fixture
def taking(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Taking:
    taking = Taking()
    monkeypatch.setattr(engine, "submit", taking)
    return taking


def text_of(seed: int) -> str:
    return f"{seed} the cat, \u732b\U0001f408 in the hat\n" * (CHARACTERS // 28)


def send(client: TestClient, bodies: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """All at once."""
    with ThreadPoolExecutor(len(bodies)) as threads:
        for response in threads.map(lambda each: client.post(each[0], json=each[1]), bodies):
            assert response.status_code == 200, response.text


def test_eight_long_texts_at_once_have_the_tokens_of_the_tokenizer(
    engine: Engine, taking: Taking
) -> None:
    texts = [text_of(seed) for seed in range(4)]
    expected = [engine.text.tokenizer.encode(text).ids for text in texts]
    messages = [[{"role": "user", "content": text}] for text in texts]
    expected += [engine.text.render_chat(each) for each in messages]
    with client_of(engine) as client:
        send(
            client,
            [
                *((COMPLETIONS, {"prompt": text}) for text in texts),
                *((CHAT, {"messages": each}) for each in messages),
            ],
        )
        assert sorted(taking.prompts) == sorted(expected)
        taking.prompts.clear()
        send(client, [(COMPLETIONS, {"prompt": ids}) for ids in expected])
        assert sorted(taking.prompts) == sorted(expected)
        taking.prompts.clear()
        send(client, [(COMPLETIONS, {"prompt": expected[:3]})])
        assert taking.prompts == expected[:3]


def test_an_echo_of_long_token_ids_is_their_text(engine: Engine, taking: Taking) -> None:
    text = text_of(1)
    ids = engine.text.encode(text)
    with client_of(engine) as client:
        answer = client.post(COMPLETIONS, json={"prompt": ids, "echo": True, "max_tokens": 1})
        assert answer.json()["choices"][0]["text"] == text


def test_short_prompts_and_health_pass_long_texts_that_are_made_ready(server: Running) -> None:
    text = server.engine.text
    long = {"prompt": "gate" + "x" * LONG_BYTES}  # it waits at the gate
    waiting = [server.send(COMPLETIONS, long) for _ in range(6)]
    assert text.at_gate.wait(20)
    assert server.client.get("/health").status_code == 200
    for path, body in ((COMPLETIONS, {"prompt": "hey"}), ("/tokenize", {"prompt": "hey"})):
        assert server.post(path, body).status_code == 200
    text.gate.set()
    for connection in waiting:
        assert connection.recv(12) == b"HTTP/1.1 400", "it fits no context"
