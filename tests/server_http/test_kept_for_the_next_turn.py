"""What an agent comes back to after a tool has run, and what it finds at its first turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server import Engine
from tests.cache.requests import Clock
from tests.server.prompts import ids
from tests.server_chat.tiny_tokenizer import BOS, write_tokenizer
from tests.server_http.anthropic.talking import make_folder
from tests.server_http.asking import MESSAGES, STREAMED, asked, body_of
from tests.server_http.real import CHAT, COMPLETIONS, ask, client_of, tiny_engine
from tests.tiny import make_tiny_folder

BLOCKS = 64
SAID = "Look for the file, then read it, then say what it is about, and be quick. "
TOOLS = [
    {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": {}}},
]
WITH_BOS = (
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content "
    "+ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with tiny_engine(make_folder(tmp_path / "tiny"), BLOCKS) as engine:
        yield engine


@pytest.fixture
def client(engine: Engine) -> Iterator[TestClient]:
    with client_of(engine) as client:
        yield client


def press(client: TestClient) -> None:
    """One-off prompts for three times the memory."""
    for seed in range(3 * BLOCKS // 8):
        answer = ask(client, COMPLETIONS, prompt=[4 + seed, *ids(127, seed)])
        assert answer["choices"][0]["finish_reason"] == "length"


@STREAMED
@pytest.mark.parametrize(
    ("path", "fields", "seconds"),
    [
        (COMPLETIONS, {"cache_retention_s": 30}, 30),
        (CHAT, {"cache_retention_s": 30}, 30),
        (CHAT, {"prompt_cache_options": {"ttl": "30s"}}, 30),
        (MESSAGES, {"cache_control": {"type": "ephemeral"}}, 300),
        (MESSAGES, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}, 3600),
    ],
    ids=["completions", "chat", "openai-ttl", "messages-5m", "messages-1h"],
)
def test_what_is_retained_outlives_pressure_until_its_time_is_over(
    client: TestClient,
    engine: Engine,
    path: str,
    fields: dict[str, Any],
    seconds: float,
    stream: bool,
) -> None:
    clock = Clock()
    engine._cache._tree.clock = clock  # type: ignore[union-attr]
    first = asked(client, path, SAID, stream=stream, **fields)
    (entry,) = client.get("/v1/cache/retained").json()["data"]
    # Whole blocks, in messages to the end of what was said; the assistant's line comes after that.
    assert entry["tokens"] >= first.prompt_tokens - 15 - (path == MESSAGES) * 16
    press(client)
    clock.now = seconds / 3  # the tool has ended
    assert asked(client, path, SAID, stream=stream).cached_tokens >= entry["tokens"]
    clock.now += seconds * 4 / 3
    press(client)
    assert asked(client, path, SAID, stream=stream).cached_tokens == 0


def test_a_head_with_tools_is_prewarmed_as_the_first_turn_has_it(
    client: TestClient, engine: Engine
) -> None:
    system = {"role": "system", "content": SAID}
    sent = {"messages": [system], "tools": TOOLS}
    done = client.post("/v1/cache/prewarm", json=sent).json()
    rendered = engine.text.decode(engine.text.render_chat([system], TOOLS), special=True)
    head = rendered.removesuffix("<|im_start|>assistant\n") + "<|im_start|>user\n"
    assert '"name": "look"' in head
    assert done["tokens"] == len(engine.text.encode(head))
    assert engine.counters()["generated_tokens"] == 0
    for question in ("Hello!", "What is there?"):
        turn = {**sent, "messages": [system, {"role": "user", "content": question}]}
        usage = ask(client, CHAT, **turn)["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == done["tokens"]
    other = ask(client, CHAT, messages=turn["messages"])["usage"]["prompt_tokens_details"]
    assert other["cached_tokens"] < 16, "without the tools it is another head"


@pytest.mark.parametrize("adds_bos", [False, True], ids=["template's", "both write one"])
def test_a_chat_and_its_rendered_text_are_the_same_tokens_with_one_bos(
    tmp_path: Path, adds_bos: bool
) -> None:
    folder = make_tiny_folder(tmp_path / "bos")
    write_tokenizer(folder, WITH_BOS, adds_bos=adds_bos)
    with tiny_engine(folder) as engine, client_of(engine) as client:
        chat = asked(client, CHAT, SAID, stream=False)
        messages = body_of(CHAT, SAID)["messages"]
        tokens = client.post("/tokenize", json={"messages": messages}).json()["tokens"]
        (bos,) = engine.text.tokenizer.encode(BOS, add_special_tokens=False).ids
        assert tokens[0] == bos
        assert tokens.count(bos) == 1
        rendered = engine.text.decode(tokens, special=True)
        assert rendered.count(BOS) == 1
        for prompt in (rendered, tokens):
            text = asked(client, COMPLETIONS, "", stream=False, prompt=prompt)
            assert text.prompt_tokens == chat.prompt_tokens == len(tokens)
            stored = (len(tokens) + chat.completion_tokens - 1) // 16 * 16
            assert text.cached_tokens == min(len(tokens) - 1, stored), "the chat has stored them"
            assert text.only.text == chat.only.text
