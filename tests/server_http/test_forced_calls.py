"""Calls that must come, from a model that knows nothing: a tiny one with random weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server import Engine
from tests.server_chat.tiny_tokenizer import write_tokenizer
from tests.server_http.real import CHAT, ask, client_of, tiny_engine
from tests.tiny import make_tiny_folder

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}<|im_start|>assistant\n{# tools, <tool_call> #}"
)
LIGHT: Any = {
    "type": "function",
    "function": {
        "name": "light",
        "parameters": {
            "type": "object",
            "properties": {"on": {"type": "boolean"}, "level": {"enum": [1, 2]}},
            "required": ["on", "level"],
            "additionalProperties": False,
        },
    },
}
DOOR: Any = {
    "type": "function",
    "function": {
        "name": "door",
        "parameters": {
            "type": "object",
            "properties": {"open": {"type": "boolean"}},
            "required": ["open"],
            "additionalProperties": False,
        },
    },
}
ASKED: Any = {"messages": [{"role": "user", "content": "do something"}], "max_tokens": 300}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = make_tiny_folder(tmp_path_factory.mktemp("models") / "tiny")
    write_tokenizer(folder, TEMPLATE)
    end = json.loads((folder / "tokenizer.json").read_text())["added_tokens"][2]["id"]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    with tiny_engine(folder) as engine:
        yield engine


@pytest.fixture
def client(engine: Engine) -> Iterator[TestClient]:
    with client_of(engine) as client:
        yield client


def calls(choice: Any) -> list[tuple[str, Any]]:
    functions = [call["function"] for call in choice["message"]["tool_calls"]]
    return [(each["name"], json.loads(each["arguments"])) for each in functions]


def check(name: str, arguments: Any) -> None:
    if name == "light":
        assert set(arguments) == {"on", "level"}
        assert isinstance(arguments["on"], bool)
        assert arguments["level"] in (1, 2)
    else:
        assert name == "door"
        assert arguments in ({"open": True}, {"open": False})


@pytest.mark.parametrize("seed", range(4))
def test_a_call_of_one_of_the_tools(client: TestClient, seed: int) -> None:
    fields = {"tools": [LIGHT, DOOR], "tool_choice": "required", "parallel_tool_calls": False}
    body = ask(client, CHAT, **ASKED, **fields, temperature=1.5, seed=seed)
    [choice] = body["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    [(name, arguments)] = calls(choice)
    check(name, arguments)


@pytest.mark.parametrize("tool", [LIGHT, DOOR])
def test_a_call_of_the_named_tool_whole_and_streamed(client: TestClient, tool: Any) -> None:
    name = tool["function"]["name"]
    named = {"type": "function", "function": {"name": name}}
    fields = {**ASKED, "tools": [LIGHT, DOOR], "tool_choice": named, "temperature": 0}
    [choice] = ask(client, CHAT, **fields)["choices"]
    assert [each for each, _ in calls(choice)] == [name]
    check(name, calls(choice)[0][1])
    stream = client.post(CHAT, json={**fields, "stream": True}).text.split("\n\n")
    chunks = [json.loads(each[6:]) for each in stream if each.startswith("data: {")]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    pieces = [each for delta in deltas for each in delta.get("tool_calls", [])]
    assert pieces[0]["function"]["name"] == name
    joined = "".join(each["function"]["arguments"] for each in pieces)
    assert joined == choice["message"]["tool_calls"][0]["function"]["arguments"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_an_answer_in_json_or_a_call(client: TestClient) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    formatted = {"type": "json_schema", "json_schema": {"name": "ok", "schema": schema}}
    fields = {"tools": [DOOR], "parallel_tool_calls": False, "response_format": formatted}
    ends = set()
    for seed in range(10):
        [choice] = ask(client, CHAT, **ASKED, **fields, temperature=2, seed=seed)["choices"]
        ends.add(choice["finish_reason"])
        if choice["finish_reason"] == "tool_calls":
            assert choice["message"]["content"] is None
            assert {name for name, _ in calls(choice)} == {"door"}
        else:
            assert json.loads(choice["message"]["content"])["ok"] in (True, False)
    assert ends == {"tool_calls", "stop"}, "a random model does both"


def test_where_none_may_come_its_beginning_is_ruled_out(client: TestClient, engine: Engine) -> None:
    [opening] = engine.text.call_openings
    fields = {"tools": [DOOR], "tool_choice": "none", "logprobs": True, "max_tokens": 8}
    body = ask(client, CHAT, **{**ASKED, **fields}, temperature=1.5, seed=1)
    shown = engine.text.token_text(opening).text
    tokens = [each["token"] for each in body["choices"][0]["logprobs"]["content"]]
    assert shown == "<tool_call>"
    assert shown not in tokens
