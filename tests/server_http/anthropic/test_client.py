"""Anthropic's own client: whole and streamed answers, with thoughts and tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.server_http.anthropic.talking import TOOLS
from tests.server_http.running import Running
from tests.server_http.scripted import REPLY
from tests.server_http.scripted_chat import OPENING

TEXT = "".join(REPLY)
CITIES = [{"city": "Paris"}, {"city": "Oslo"}]


@pytest.fixture
def client(server: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0) as client:
        yield client


def asked(last_word: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"answer {last_word}"}]
    return {"model": "scripted-1", "max_tokens": 50, "messages": messages, **fields}


def test_a_whole_answer(client: anthropic.Anthropic) -> None:
    message = client.messages.create(**asked("whole"))
    (block,) = message.content
    assert (block.type, message.role, message.type) == ("text", "assistant", "message")
    assert block.text == TEXT
    assert message.model == "scripted-1"
    assert message.id.startswith("msg_")
    assert message._request_id == message.id
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert (message.usage.input_tokens, message.usage.output_tokens) == (12, 4)


def test_a_streamed_answer(client: anthropic.Anthropic) -> None:
    with client.messages.stream(**asked("stream")) as stream:
        texts = list(stream.text_stream)
        final = stream.get_final_message()
    assert texts == list(REPLY)
    assert final.content[0].type == "text"
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens == 4
    events = [each.type for each in client.messages.create(**asked("raw"), stream=True)]
    assert events == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * 4,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_the_asynchronous_client(server: Running) -> None:
    async def ask() -> str:
        async with anthropic.AsyncAnthropic(
            base_url=server.url, api_key="unused", max_retries=0
        ) as client:
            whole = await client.messages.create(**asked("async"))
            assert whole.content[0].type == "text"
            async with client.messages.stream(**asked("async stream")) as stream:
                return await stream.get_final_text()

    assert asyncio.run(ask()) == TEXT


def blocks(message: Any) -> list[Any]:
    """The content, without what differs each time."""
    dumped = [each.model_dump(exclude_none=True) for each in message.content]
    for each in dumped:
        each.pop("id", None)
        each.pop("parsed_output", None)
    return dumped


def test_thoughts_text_and_calls_are_blocks_of_their_own(client: anthropic.Anthropic) -> None:
    message = client.messages.create(**asked("calls", tools=TOOLS))
    thinking, text, *calls = blocks(message)
    assert thinking.pop("signature")
    assert thinking == {"type": "thinking", "thinking": "Two cities."}
    assert text == {"type": "text", "text": "I will look."}
    assert calls == [{"type": "tool_use", "name": "weather", "input": city} for city in CITIES]
    assert message.stop_reason == "tool_use"
    ids = [each.id for each in message.content if each.type == "tool_use"]
    assert len(set(ids)) == 2


def test_a_streamed_answer_with_them_is_the_whole_one(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(**asked("calls", tools=TOOLS))
    with client.messages.stream(**asked("calls", tools=TOOLS)) as stream:
        events = list(stream)
        final = stream.get_final_message()
    assert blocks(final) == blocks(whole)
    assert final.stop_reason == "tool_use"
    pieces = [each.partial_json for each in events if each.type == "input_json"]
    assert len(pieces) > 2, "as they come"
    thoughts = [each.thinking for each in events if each.type == "thinking"]
    assert thoughts == ["Two ", "cities."]
    signatures = [each.signature for each in events if each.type == "signature"]
    assert signatures == [final.content[0].signature]  # type: ignore[union-attr]
    starts = [each.index for each in events if each.type == "content_block_start"]
    stops = [each.index for each in events if each.type == "content_block_stop"]
    assert starts == stops == [0, 1, 2, 3]


def test_the_turn_after_calls(client: anthropic.Anthropic, server: Running) -> None:
    first = client.messages.create(**asked("calls", tools=TOOLS))
    results: Any = [
        {"type": "tool_result", "tool_use_id": each.id, "content": "warm"}
        for each in first.content
        if each.type == "tool_use"
    ]
    history = [first.to_param(), {"role": "user", "content": [*results]}]
    messages = [*asked("calls")["messages"], *history]
    client.messages.create(**asked("", tools=TOOLS) | {"messages": messages})
    question, answer, *told = server.engine.text.chats[-1][0]
    assert question == {"role": "user", "content": "answer calls"}
    assert (answer["content"], answer["reasoning_content"]) == ("I will look.", "Two cities.")
    assert [json.loads(call["function"]["arguments"]) for call in answer["tool_calls"]] == CITIES
    assert told == [
        {"role": "tool", "content": "warm", "tool_call_id": call["id"]}
        for call in answer["tool_calls"]
    ]


def test_a_call_that_the_limit_cuts_off(client: anthropic.Anthropic) -> None:
    message = client.messages.create(**asked("calls", tools=TOOLS) | {"max_tokens": 4})
    assert message.stop_reason == "max_tokens"
    (call,) = (each for each in message.content if each.type == "tool_use")
    assert call.input == {}
    with client.messages.stream(**asked("calls", tools=TOOLS) | {"max_tokens": 4}) as stream:
        assert stream.get_final_message().stop_reason == "max_tokens"


def test_choices_of_tools(client: anthropic.Anthropic, server: Running) -> None:
    def params(**fields: Any) -> Any:
        client.messages.create(**asked("calls", **fields))
        submitted = server.engine.record.submitted
        return submitted[max(submitted)][1]

    other = {"name": "time", "input_schema": {"type": "object"}}
    both = [*TOOLS, other]
    assert params(tools=both).constraint is None
    assert params(tools=both, tool_choice={"type": "auto"}).shown_tokens == {OPENING}
    required = params(tools=both, tool_choice={"type": "any"}).constraint.source
    assert '"weather"' in required
    assert '"time"' in required
    named = params(tools=both, tool_choice={"type": "tool", "name": "time"}).constraint.source
    assert '"weather"' not in named
    assert '"time"' in named
    never = params(tools=both, tool_choice={"type": "none"})
    assert never.sampling.logit_bias == {OPENING: -100}
    assert (never.constraint, never.shown_tokens) == (None, frozenset())


def test_one_call_only(client: anthropic.Anthropic) -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    message = client.messages.create(**asked("calls", tools=TOOLS, tool_choice=choice))
    assert [each.type for each in message.content] == ["thinking", "text", "tool_use"]
    assert message.stop_reason == "tool_use"


def test_an_answer_of_a_schema(client: anthropic.Anthropic, server: Running) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"format": {"type": "json_schema", "schema": schema}}
    client.messages.create(**asked("x", output_config=form, tools=TOOLS))
    submitted = server.engine.record.submitted
    constraint = submitted[max(submitted)][1].constraint
    assert constraint is not None
    assert json.loads(constraint.source) == schema
    assert constraint.param == "output_config.format"
    assert '"weather"' in constraint.instead


def test_sampling_and_limits_arrive(client: anthropic.Anthropic, server: Running) -> None:
    client.messages.create(
        **asked("x", stop_sequences=["a", "\n\n"]),
        extra_body={"temperature": 0.5, "top_p": 0.25, "top_k": 7},
    )
    submitted = server.engine.record.submitted
    params = submitted[max(submitted)][1]
    assert params.sampling is not None
    assert (params.sampling.temperature, params.sampling.top_p) == (0.5, 0.25)
    assert (params.sampling.top_k, params.stop, params.max_tokens) == (7, ("a", "\n\n"), 50)
    client.messages.create(**asked("y"))
    assert submitted[max(submitted)][1].sampling == server.engine.info.sampling


def test_tokens_are_counted(client: anthropic.Anthropic, server: Running) -> None:
    before = len(server.engine.record.submitted)
    counted = client.messages.count_tokens(
        model="scripted-1", system="Be brief.", messages=asked("count")["messages"]
    )
    assert counted.input_tokens == len("Be brief.\nanswer count")
    assert len(server.engine.record.submitted) == before
    message = client.messages.create(**asked("count", system="Be brief."))
    assert message.usage.input_tokens == counted.input_tokens


def test_a_count_is_no_completed_prompt(server: Running, client: anthropic.Anthropic) -> None:
    def measured() -> list[str]:
        lines = server.client.get("/metrics").text.splitlines()
        return [line for line in lines if line.startswith("radix_request_prompt_tokens_count")]

    before = measured()
    client.messages.count_tokens(model="scripted-1", messages=asked("count")["messages"])
    assert measured() == before
    client.messages.create(**asked("count"))
    assert measured() != before


def test_the_beta_client_uses_the_same_path(client: anthropic.Anthropic) -> None:
    message = client.beta.messages.create(**asked("beta"), betas=["some-beta-2025-01-01"])
    assert message.content[0].type == "text"
    assert client.beta.messages.count_tokens(
        model="scripted-1", messages=asked("beta")["messages"]
    ).input_tokens == len("answer beta")
