"""Tools and reasoning in chats: what the model is told, and what the client gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from server.chat.prompt import ChatOptions
from server.generation_params import GenerationParams
from server.http.chat_schemas import ChatCompletion, ChatCompletionChunk
from tests.server_http.running import Running, events
from tests.server_http.scripted_chat import OPENING

CHAT = "/v1/chat/completions"
WEATHER = {
    "type": "function",
    "function": {
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "name": "weather",
    },
}
TIME = {"type": "function", "function": {"name": "time"}}


def body(last_word: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"answer {last_word}"}], **fields}


def ask(server: Running, last_word: str, **fields: Any) -> Any:
    response = server.post(CHAT, body(last_word, **fields))
    assert response.status_code == 200, response.text
    whole = response.json()
    ChatCompletion.model_validate(whole, strict=True)
    return whole["choices"][0]


def params(server: Running) -> GenerationParams:
    """Of the request that came last."""
    return server.engine.record.submitted[max(server.engine.record.submitted)][1]


def streamed(server: Running, last_word: str, **fields: Any) -> list[Any]:
    chunks = events(server.post(CHAT, body(last_word, stream=True, **fields)))
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    return [choice for chunk in chunks for choice in chunk["choices"]]


def test_a_whole_answer_has_reasoning_content_and_calls(server: Running) -> None:
    choice = ask(server, "calls", tools=[WEATHER])
    message = choice["message"]
    assert choice["finish_reason"] == "tool_calls"
    assert message["reasoning_content"] == "Two cities."
    assert message["content"] == "I will look."
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "weather", "arguments": '{"city": "Paris"}'},
        {"name": "weather", "arguments": '{"city": "Oslo"}'},
    ]
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    assert {call["type"] for call in message["tool_calls"]} == {"function"}


def test_a_streamed_answer_has_the_same_in_pieces(server: Running) -> None:
    chunks = streamed(server, "calls", tools=[WEATHER])
    assert chunks[0]["delta"] == {"role": "assistant", "content": ""}
    deltas = [chunk["delta"] for chunk in chunks[1:-1]]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    begun = [call for call in calls if "id" in call]
    assert [call["index"] for call in begun] == [0, 1]
    for call in begun:
        assert call["type"] == "function"
        assert call["function"] == {"name": "weather", "arguments": ""}
    assert all(set(call) == {"index", "function"} for call in calls if call not in begun)
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Two cities."
    assert "".join(delta.get("content", "") for delta in deltas) == "I will look."
    for index, city in enumerate(("Paris", "Oslo")):
        pieces = [call["function"]["arguments"] for call in calls if call["index"] == index]
        assert "".join(pieces) == f'{{"city": "{city}"}}'
    assert len([call for call in calls if call["index"] == 0]) > 2, "as they come"
    assert chunks[-1]["delta"] == {}
    assert chunks[-1]["finish_reason"] == "tool_calls"


def told(server: Running) -> list[int]:
    """Which answers to the request that came last the engine was told to call a tool."""
    record = server.engine.record
    latest = max(record.submitted)
    return sorted(answer for request, answer in record.tool_calls if request == latest)


def test_the_engine_is_told_which_answers_ended_with_tool_calls(server: Running) -> None:
    ask(server, "calls", tools=[WEATHER])
    assert told(server) == [0]
    streamed(server, "calls", tools=[WEATHER])
    assert told(server) == [0]


@pytest.mark.parametrize(
    ("last_word", "fields"),
    [
        ("calls", {}),  # no tools: calls are content
        ("calls", {"tools": [WEATHER], "max_tokens": 5}),  # cut off
        ("breaks", {"tools": [TIME]}),
        ("thinks", {"tools": [TIME]}),
    ],
)
def test_the_engine_is_not_told_of_other_answers(
    server: Running, last_word: str, fields: dict[str, Any]
) -> None:
    ask(server, last_word, **fields)
    assert told(server) == []
    streamed(server, last_word, **fields)
    assert told(server) == []


def test_the_engine_is_told_of_each_of_several_answers(server: Running) -> None:
    whole = server.post(CHAT, body("calls", tools=[WEATHER], n=2)).json()
    reasons = [choice["finish_reason"] for choice in whole["choices"]]
    assert reasons == ["tool_calls", "tool_calls"]
    assert told(server) == [0, 1]
    streamed(server, "calls", tools=[WEATHER], n=2)
    assert told(server) == [0, 1]


def test_what_may_have_been_a_call_comes_at_the_end_of_a_stream(server: Running) -> None:
    server.engine.text.replies["half"] = ("Hi <tool_", "call")
    deltas = [chunk["delta"] for chunk in streamed(server, "half", tools=[TIME])]
    assert "".join(delta.get("content", "") for delta in deltas) == "Hi <tool_call"


def test_an_answer_of_nothing_but_calls_has_no_content(server: Running) -> None:
    server.engine.text.replies["only"] = ('<tool_call>{"name": "time"}</tool_call>',)
    choice = ask(server, "only", tools=[TIME])
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "time", "arguments": "{}"}
    assert "reasoning_content" not in choice["message"]


def test_what_is_no_call_is_content_and_ends_as_any_other(server: Running) -> None:
    choice = ask(server, "breaks", tools=[TIME])
    assert choice["message"] == {
        "role": "assistant",
        "content": "<tool_call>\nno JSON\n</tool_call>",
        "refusal": None,
    }
    assert choice["finish_reason"] == "stop"


def test_a_call_that_the_limit_cuts_off_does_not_end_as_one(server: Running) -> None:
    choice = ask(server, "calls", tools=[WEATHER], max_tokens=4)
    assert choice["finish_reason"] == "length"
    function = choice["message"]["tool_calls"][0]["function"]
    with pytest.raises(json.JSONDecodeError):
        json.loads(function["arguments"])
    choice = ask(server, "calls", tools=[WEATHER], max_tokens=5)
    assert choice["finish_reason"] == "length", "also where the first one is whole"


@pytest.mark.parametrize("fields", [{}, {"tools": [WEATHER], "tool_choice": "none"}])
def test_without_tools_to_call_calls_are_content(server: Running, fields: Any) -> None:
    choice = ask(server, "calls", **fields)
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["reasoning_content"] == "Two cities."
    assert choice["message"]["content"].startswith("I will look.\n<tool_call>")
    assert "tool_calls" not in choice["message"]
    assert params(server).shown_tokens == frozenset()
    bias = params(server).sampling
    assert bias is not None
    assert bias.logit_bias == ({OPENING: -100} if fields else {})


def test_reasoning_is_parted_off_without_tools(server: Running) -> None:
    assert ask(server, "thinks")["message"] == {
        "role": "assistant",
        "content": "Yes.",
        "refusal": None,
        "reasoning_content": "Hm.",
    }


def test_tools_reach_the_template_as_they_were_sent(server: Running) -> None:
    ask(server, "x", tools=[WEATHER, TIME])
    assert json.dumps(server.engine.text.chats[-1][1]) == json.dumps([WEATHER, TIME])
    assert params(server).shown_tokens == frozenset([OPENING])
    assert params(server).constraint is None


def test_one_call_only(server: Running) -> None:
    choice = ask(server, "calls", tools=[WEATHER], parallel_tool_calls=False)
    assert len(choice["message"]["tool_calls"]) == 1
    calls = [
        call
        for chunk in streamed(server, "calls", tools=[WEATHER], parallel_tool_calls=False)
        for call in chunk["delta"].get("tool_calls", [])
    ]
    assert {call["index"] for call in calls} == {0}


def test_a_call_that_must_come_is_a_constraint(server: Running) -> None:
    ask(server, "calls", tools=[WEATHER, TIME], tool_choice="required")
    required = params(server).constraint
    assert required is not None
    assert (required.kind, required.param) == ("lark", "tool_choice")
    assert '"weather"' in required.source
    assert '"time"' in required.source
    named = {"type": "function", "function": {"name": "time"}}
    ask(server, "calls", tools=[WEATHER, TIME], tool_choice=named)
    only = params(server).constraint
    assert only is not None
    assert '"weather"' not in only.source
    assert '"time"' in only.source


def test_an_answer_in_json_or_a_call_in_its_place(server: Running) -> None:
    asked = {"tools": [TIME], "response_format": {"type": "json_object"}}
    ask(server, "x", **asked)
    constraint = params(server).constraint
    assert constraint is not None
    assert (constraint.kind, constraint.param) == ("json_schema", "response_format")
    assert '"time"' in constraint.instead
    ask(server, "x", **asked, tool_choice="none")
    constraint = params(server).constraint
    assert constraint is not None
    assert constraint.instead == ""


def test_where_a_call_must_come_the_form_of_other_answers_is_without_effect(
    server: Running,
) -> None:
    asked = {"tools": [TIME], "response_format": {"type": "json_object"}}
    response = server.post(CHAT, body("x", **asked, tool_choice="required"))
    assert response.headers["x-ignored-fields"] == "response_format"
    constraint = params(server).constraint
    assert constraint is not None
    assert constraint.param == "tool_choice"


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"tool_choice": "required"}, "tool_choice", "no tools"),
        (
            {"tools": [TIME], "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice",
            "'x', which is none of the tools",
        ),
        ({"tools": [TIME], "tool_choice": "maybe"}, "tool_choice", "auto"),
        (
            {"tools": [TIME], "tool_choice": "required", "ignore_eos": True},
            "ignore_eos",
            "tool_choice",
        ),
        ({"functions": [{"name": "f"}]}, "functions", "Send tools instead"),
        ({"function_call": {"name": "f"}}, "function_call", "Send tool_choice instead"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "required"),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs", "tools"),
        ({"continue_final_message": True}, "continue_final_message", "role user"),
        (
            {"continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
            "both true",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    server: Running, fields: Any, param: str, words: str
) -> None:
    response = server.post(CHAT, body("x", **fields))
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"].startswith(param)
    assert words in error["message"]


def test_earlier_turns_reach_the_template(server: Running) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "time", "arguments": "{}"}}
    messages = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "what "}, {"type": "text", "text": "x"}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "Hm."},
        {"role": "tool", "content": "noon", "tool_call_id": "c"},
    ]
    response = server.post(CHAT, {"messages": messages, "tools": [TIME]})
    assert response.status_code == 200, response.text
    assert server.engine.text.chats[-1][0] == [
        {"role": "user", "content": "what x"},
        {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "Hm."},
        {"role": "tool", "content": "noon", "tool_call_id": "c"},
    ]


def test_variables_of_the_template(server: Running) -> None:
    fields = {
        "chat_template_kwargs": {"enable_thinking": False, "unheard": 1},
        "reasoning_effort": "low",
        "add_generation_prompt": False,
    }
    response = server.post(CHAT, body("x", **fields))
    assert response.headers["x-ignored-fields"] == "chat_template_kwargs.unheard"
    variables = {"enable_thinking": False, "unheard": 1, "reasoning_effort": "low"}
    assert server.engine.text.prompts[-1][0] == ChatOptions(False, False, variables)


def test_an_effort_that_the_template_does_not_know_is_named(server: Running) -> None:
    server.engine.text.known_variables = ()
    response = server.post(CHAT, body("x", reasoning_effort="low"))
    server.engine.text.known_variables = ("reasoning_effort", "enable_thinking")
    assert response.headers["x-ignored-fields"] == "reasoning_effort"
    assert server.engine.text.prompts[-1][0].variables == {}


def test_an_answer_that_goes_on(server: Running) -> None:
    messages = [*body("x")["messages"], {"role": "assistant", "content": "So"}]
    response = server.post(CHAT, {"messages": messages, "continue_final_message": True})
    assert response.status_code == 200, response.text
    assert server.engine.text.prompts[-1][0] == ChatOptions(False, True, {})


def test_the_tokens_of_answers_are_remembered_whole_and_streamed(server: Running) -> None:
    tokens = [piece.encode()[0] for piece in ("Hello", ", ", "w", "!")]
    for stream in (False, True):
        server.engine.text.remembered.clear()
        server.post(CHAT, body("x", stream=stream, n=2)).read()
        first, second = sorted(server.engine.text.remembered, key=len)
        assert first == tokens
        assert second[-1:] == tokens[-1:]


def test_log_probabilities_go_with_the_piece_that_shows_their_tokens(server: Running) -> None:
    chunks = streamed(server, "calls", tools=[WEATHER], logprobs=True)
    entries = [chunk["logprobs"]["content"] for chunk in chunks if chunk["logprobs"]]
    assert [len(each) for each in entries] == [1] * 6
    whole = ask(server, "calls", tools=[WEATHER], logprobs=True)["logprobs"]["content"]
    assert [each[0] for each in entries] == whole
