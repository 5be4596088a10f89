"""A served engine notices by itself that prompts keep missing its cache, and says where."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.http.service import Service
from server.http.settings import HttpSettings
from tests.server_http.anthropic.talking import TEMPLATE
from tests.server_http.keys import ACME, BETA, OPERATOR, bearer, ring
from tests.server_http.real import CHAT, COMPLETIONS, ask, client_of, conversation, tiny_engine
from tests.tiny import make_tiny_folder

RULES = "Always be kind to people and say so. " * 14
WHERE = "/debug/near-misses"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with a long context, whose template shows tools."""
    path = tmp_path_factory.mktemp("near") / "tiny"
    make_tiny_folder(path, tokenizer=True, max_position_embeddings=8192)
    file = path / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps({**settings, "chat_template": TEMPLATE}))
    return path


@pytest.fixture
def client(folder: Path) -> Iterator[TestClient]:
    with tiny_engine(folder, num_blocks=2000) as engine, client_of(engine) as client:
        yield client


def listed(client: TestClient, key: str | None = None) -> Any:
    """What is known once all has been looked at."""
    service: Service = client.app.state.service  # type: ignore[attr-defined]
    service.near_misses.wait()
    response = client.get(WHERE, headers=bearer(key) if key else None)
    assert response.status_code == 200
    return response.json()


def end_of(answer: Any) -> dict[str, Any]:
    end: dict[str, Any] = answer["usage"]["prompt_tokens_details"]["match_end"]
    return end


def timed(minute: int) -> list[dict[str, Any]]:
    """A conversation whose system prompt tells the time."""
    return conversation(f"It is 2026-11-30 19:{minute:02}. {RULES}", f"Question {minute}")


def test_a_time_at_token_30_of_5000_is_named_after_three_repeats(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "server.near_miss")
    tokens = client.app.state.service.engine.text.encode  # type: ignore[attr-defined]
    head = "<|im_start|>system\n"
    words = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    before = words[: 30 - len(tokens(head)) - len("#")] + "#"
    assert len(tokens(head + before)) == 30
    for number in range(5):
        system = f"{before}{number}9:02:30 {'Qq ' * 1750}"
        answer = ask(client, CHAT, messages=conversation(system, "Hello"))
        assert answer["usage"]["prompt_tokens"] > 5000
        if number:
            details = answer["usage"]["prompt_tokens_details"]
            assert details["cached_tokens"] == 30
            assert (end_of(answer)["reason"], end_of(answer)["position"]) == ("diverged", 30)
        known = listed(client)
        assert len(known["data"]) == (number >= 3)
        assert len(caplog.records) == (number >= 3)  # once
    (near_miss,) = known["data"]
    assert near_miss["where"] == "diverged at token 30, system message 0"
    assert near_miss["kind"] == "clock"
    assert near_miss["characters"] == [len(before), len(before) + len("09:02:30")]
    assert near_miss["times"] == 4
    assert (near_miss["here"], near_miss["stored"]) == ("49:02:30", "09:02:30")
    # One digit differs; what follows it is in the cache, in whole blocks.
    assert near_miss["lost_tokens"] == answer["usage"]["prompt_tokens"] // 16 * 16 - 31
    message = caplog.records[0].getMessage()
    assert "they diverge at token 30, system message 0; to mend it: leave the time out" in message
    noted: dict[str, Any] = caplog.records[0].fields  # type: ignore[attr-defined]
    assert noted["kind"] == "clock"
    assert noted["times"] == 3
    assert "9:02:30" not in str(noted) + message
    metrics = client.get("/metrics").text
    assert 'radix_near_misses_total{kind="clock"} 4.0' in metrics
    total = near_miss["lost_tokens_total"]
    assert f'radix_near_miss_tokens_total{{kind="clock"}} {float(total)}' in metrics


def test_the_log_shows_what_differs_only_where_it_may(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = HttpSettings(log_prompts=True)
    with tiny_engine(folder, num_blocks=500) as engine, client_of(engine, settings) as client:
        for minute in range(4):
            ask(client, CHAT, messages=timed(minute))
        listed(client)
    (line,) = [each for each in caplog.records if each.name == "server.near_miss"]
    noted: dict[str, Any] = line.fields  # type: ignore[attr-defined]
    assert (noted["here"], noted["stored"]) == ("2026-11-30 19:03", "2026-11-30 19:00")


def tool(name: str) -> dict[str, Any]:
    function = {"name": name, "description": f"To {name} things that are there, now or later."}
    return {"type": "function", "function": {**function, "parameters": {"type": "object"}}}


def test_the_same_tools_in_other_orders_are_named(client: TestClient) -> None:
    names = ["search", "read", "write", "count"]
    for turn in range(4):
        shown = [*names[turn:], *names[:turn]]
        messages = conversation("Be kind.", f"Question {turn}")
        ask(client, CHAT, messages=messages, tools=[tool(name) for name in shown])
    (near_miss,) = listed(client)["data"]
    assert near_miss["kind"] == "tool_order"
    assert near_miss["section"] == "tools"
    assert near_miss["where"].endswith("tools section")


def test_what_ordinary_chats_do_is_never_named(client: TestClient) -> None:
    for number in range(8):
        talk = conversation(RULES, f"{'abcdefgh'[number] * 90} is what? {'Please. ' * 20}")
        answer = ask(client, CHAT, messages=talk)
        talk.append({"role": "assistant", "content": f"{'hgfedcba'[number] * 80}."})
        talk.append({"role": "user", "content": f"And {'stuvwxyz'[number] * 70}?"})
        answer = ask(client, CHAT, messages=talk)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 400
    summed = conversation(RULES, "All that was said, summed up: " + "kindness " * 20)
    ask(client, CHAT, messages=summed)
    assert listed(client)["data"] == []


def test_full_hits_are_not_looked_at(client: TestClient) -> None:
    for _ in range(5):
        ask(client, CHAT, messages=timed(1))
        ask(client, COMPLETIONS, prompt=f"Again and again. {RULES}")
    assert listed(client)["looked_at"] == 0


def test_token_ids_and_texts_are_looked_at_too(client: TestClient) -> None:
    tokens = client.app.state.service.engine.text.encode  # type: ignore[attr-defined]
    for minute in range(4):
        text = f"It is 19:{minute:02} now. {RULES}"
        ask(client, COMPLETIONS, prompt=text if minute % 2 else tokens(text))
    (near_miss,) = listed(client)["data"]
    assert (near_miss["kind"], near_miss["section"]) == ("clock", "prompt")
    assert near_miss["characters"] == [6, 11]


def test_namespaces_are_not_compared(client: TestClient) -> None:
    for minute in range(8):
        ask(client, CHAT, messages=timed(minute), cache_salt=f"salt {minute}")
    known = listed(client)
    assert (known["looked_at"], known["data"]) == (0, [])


def test_tenants_are_told_apart_and_only_operators_are_told(folder: Path, tmp_path: Path) -> None:
    settings = HttpSettings(keys=ring(tmp_path))
    with tiny_engine(folder, num_blocks=500) as engine, client_of(engine, settings) as client:
        for minute in range(5):
            for key in (ACME, BETA) if minute < 3 else (ACME,):
                body = {"messages": timed(minute), "max_tokens": 1}
                assert client.post(CHAT, json=body, headers=bearer(key)).status_code == 200
        (near_miss,) = listed(client, OPERATOR)["data"]
        assert (near_miss["tenant"], near_miss["times"]) == ("acme", 4)
        assert client.get(WHERE, headers=bearer(ACME)).status_code == 403
        assert client.get(WHERE).status_code == 401
