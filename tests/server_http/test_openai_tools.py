"""OpenAI's own client and its helpers, with tools and reasoning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageFunctionToolCall

from tests.server_http.running import Running

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
ASKED: Any = [{"role": "user", "content": "answer calls"}]
CITIES = [{"city": "Paris"}, {"city": "Oslo"}]


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def arguments_of(calls: Any) -> list[Any]:
    assert all(isinstance(call, ChatCompletionMessageFunctionToolCall) for call in calls)
    return [json.loads(call.function.arguments) for call in calls]


def test_a_whole_answer_and_the_turn_after_it(client: openai.OpenAI, server: Running) -> None:
    answer = client.chat.completions.create(model="scripted-1", messages=ASKED, tools=TOOLS)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    assert message.content == "I will look."
    assert message.model_extra == {"reasoning_content": "Two cities."}
    calls = message.tool_calls
    assert calls is not None
    assert arguments_of(calls) == CITIES
    results = [{"role": "tool", "content": "warm", "tool_call_id": each.id} for each in calls]
    history: Any = [*ASKED, message, *results]
    after = client.chat.completions.create(model="scripted-1", messages=history, tools=TOOLS)
    assert after.choices[0].message.tool_calls
    sent = server.engine.text.chats[-1][0][1]
    assert sent["reasoning_content"] == "Two cities."
    assert [call["function"]["arguments"] for call in sent["tool_calls"]] == [
        json.dumps(each) for each in CITIES
    ]


def test_a_streamed_answer(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="scripted-1", messages=ASKED, tools=TOOLS, stream=True
    )
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    content = reasoning = ""
    for chunk in stream:
        delta = chunk.choices[0].delta
        content += delta.content or ""
        reasoning += (delta.model_extra or {}).get("reasoning_content", "")
        for call in delta.tool_calls or []:
            assert call.function is not None
            if call.id is not None:
                names[call.index] = call.function.name or ""
            piece = call.function.arguments or ""
            arguments[call.index] = arguments.get(call.index, "") + piece
        last = chunk.choices[0].finish_reason
    assert (content, reasoning, last) == ("I will look.", "Two cities.", "tool_calls")
    assert names == {0: "weather", 1: "weather"}
    assert [json.loads(arguments[index]) for index in (0, 1)] == CITIES


def test_the_helper_that_gathers_a_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="scripted-1", messages=ASKED, tools=TOOLS) as stream:
        done = [each for each in stream if each.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    assert [json.loads(each.arguments) for each in done] == CITIES
    message = final.choices[0].message
    assert final.choices[0].finish_reason == "tool_calls"
    assert arguments_of(message.tool_calls) == CITIES
    assert message.content == "I will look."


def test_a_choice_of_tools(client: openai.OpenAI, server: Running) -> None:
    client.chat.completions.create(
        model="scripted-1",
        messages=ASKED,
        tools=TOOLS,
        tool_choice={"type": "function", "function": {"name": "weather"}},
        parallel_tool_calls=False,
    )
    constraint = server.engine.record.submitted[max(server.engine.record.submitted)][1].constraint
    assert constraint is not None
    with pytest.raises(openai.BadRequestError, match="none of the tools"):
        client.chat.completions.create(
            model="scripted-1",
            messages=ASKED,
            tools=TOOLS,
            tool_choice={"type": "function", "function": {"name": "other"}},
        )
