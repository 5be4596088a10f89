"""Messages and tools on their way to the chat template."""

from __future__ import annotations

from typing import Any

from tests.server_http.running import Running

CHAT = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"strict": True, "parameters": {"b": 1}, "name": "look"}}


def rendered(server: Running, messages: list[Any], **fields: Any) -> tuple[Any, Any]:
    response = server.post(CHAT, {"messages": messages, **fields})
    assert response.status_code == 200, response.text
    return server.engine.text.chats[-1]


def test_text_parts_are_the_same_as_a_string(server: Running) -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    sent = rendered(server, [{"role": "user", "content": parts}])
    assert sent == rendered(server, [{"role": "user", "content": "one two"}])


def test_tool_calls_and_results_reach_the_template_as_sent(server: Running) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages, tools = rendered(
        server,
        [
            {"role": "developer", "content": "Be short."},
            {"role": "user", "content": "look", "name": "Ann", "audio": None},
            {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
            {"role": "tool", "content": "found", "tool_call_id": "c1"},
        ],
        tools=[TOOL],
    )
    assert messages == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "look", "name": "Ann"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "found", "tool_call_id": "c1"},
    ]
    assert tools == [TOOL]
    assert list(tools[0]["function"]) == ["strict", "parameters", "name"]


def test_no_tools_is_the_same_as_an_empty_list(server: Running) -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert rendered(server, messages, tools=[])[1] is None
    assert rendered(server, messages)[1] is None


def test_what_the_template_refuses_is_a_400(server: Running) -> None:
    response = server.post(CHAT, {"messages": [{"role": "tool", "content": "first"}]})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages"
