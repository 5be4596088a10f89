"""A conversation in blocks, as the chat template gets it, and where its marks are."""

from __future__ import annotations

from typing import Any

import pytest

from radix_engine.cache import Namespace
from server.chat.prompt import ChatOptions
from server.http.anthropic.request import CountRequest
from server.http.breakpoints import Mark
from tests.server_http.running import Running

FIVE, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
ASKED = {"role": "user", "content": "Hi."}


def text(words: str, mark: Any = None) -> dict[str, Any]:
    return {"type": "text", "text": words, "cache_control": mark}


def call(id_: str, mark: Any = None, **arguments: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": id_, "name": "look", "input": arguments}
    return {**block, "cache_control": mark}


def result(id_: str, content: Any, mark: Any = None, **fields: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": id_, "content": content}
    return {**block, "cache_control": mark, **fields}


def thinking(words: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": "anything"}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def rendered(*messages: Any, strict: bool = False, **fields: Any) -> list[dict[str, Any]]:
    """The messages for the template."""
    request = CountRequest.model_validate({"messages": list(messages), **fields})
    return request.conversation(strict_turns=strict).messages


def marks(*messages: Any, **fields: Any) -> list[tuple[Mark, float]]:
    request = CountRequest.model_validate({"messages": list(messages), **fields})
    return list(request.conversation().marks)


def function(id_: str, arguments: str) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": "look", "arguments": arguments}}


def test_a_string_is_a_block_of_text() -> None:
    assert rendered(ASKED) == rendered(user(text("Hi."))) == [ASKED]
    assert rendered(ASKED, system="Be brief.") == rendered(ASKED, system=[text("Be brief.")])
    assert rendered(ASKED, system=[]) == [ASKED]


def test_blocks_of_text_are_joined_with_nothing_between_them() -> None:
    system = [text("You are brief."), text("\nVery.")]
    assert rendered(user(text("one "), text("two")), system=system) == [
        {"role": "system", "content": "You are brief.\nVery."},
        {"role": "user", "content": "one two"},
    ]


def test_an_assistants_blocks_are_one_message() -> None:
    blocks = [thinking("Hm."), text("I look."), call("a", at="x"), call("b", n=1.0, e="\u00e9")]
    assert rendered(ASKED, assistant(*blocks), user(result("a", "1"), result("b", "2"))) == [
        ASKED,
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                function("a", '{"at": "x"}'),
                function("b", '{"n": 1.0, "e": "\u00e9"}'),
            ],
        },
        {"role": "tool", "content": "1", "tool_call_id": "a"},
        {"role": "tool", "content": "2", "tool_call_id": "b"},
    ]


def test_results_and_words_keep_their_order() -> None:
    turn = user(text("before"), result("a", [text("o"), text("k")]), text("after"), text("!"))
    assert rendered(ASKED, assistant(call("a")), turn)[2:] == [
        {"role": "user", "content": "before"},
        {"role": "tool", "content": "ok", "tool_call_id": "a"},
        {"role": "user", "content": "after!"},
    ]
    assert rendered(ASKED, assistant(call("a")), turn, strict=True)[2:] == [
        {"role": "user", "content": "before"},
        {"role": "tool", "content": "ok\n\nafter!", "tool_call_id": "a"},
    ]


def test_messages_of_one_role_in_a_row_are_one_turn() -> None:
    assert rendered(ASKED, user(text("Again.")), user(text("a"), text("b"))) == [
        {"role": "user", "content": "Hi.\n\nAgain.\n\nab"}
    ]
    split = [assistant(thinking("Hm.")), assistant(text("I ")), assistant(text("look."), call("a"))]
    whole = assistant(thinking("Hm."), text("I "), text("look."), call("a"))
    after = user(result("a", "1"))
    assert rendered(ASKED, *split, after) == rendered(ASKED, whole, after)


def test_a_result_that_is_an_error_says_so() -> None:
    def told(content: Any, **fields: Any) -> Any:
        return rendered(ASKED, assistant(call("a")), user(result("a", content, **fields)))[2]

    assert told("no such file", is_error=True)["content"] == "Error: no such file"
    assert told("Error: no such file", is_error=True)["content"] == "Error: no such file"
    assert told("<tool_use_error>x", is_error=True)["content"] == "<tool_use_error>x"
    assert told("3", is_error=False)["content"] == "3"
    assert told(None)["content"] == told([])["content"] == ""


def test_what_is_not_for_this_model_is_left_out(server: Running) -> None:
    redacted = {"type": "redacted_thinking", "data": "x"}
    after = user(text("Go on."))
    assert rendered(ASKED, assistant(redacted, text("Yes.")), after) == rendered(
        ASKED, assistant(text("Yes.")), after
    )
    found = [{"type": "tool_reference", "tool_name": "look"}, text("one")]
    turn = user(result("a", found))
    assert rendered(ASKED, assistant(call("a")), turn)[2]["content"] == "one"
    sent = {"messages": [ASKED, assistant(call("a")), turn]}
    ignored = server.post("/v1/messages/count_tokens", sent).headers["x-ignored-fields"]
    assert ignored == "tool_reference"


def test_system_messages_stay_where_they_are() -> None:
    now = {"role": "system", "content": "It is late."}
    brief = {"role": "system", "content": "Be brief."}
    assert rendered(ASKED, now, system="Be brief.") == [brief, ASKED, now]
    assert rendered(ASKED, now, system="Be brief.", strict=True) == [
        brief,
        {"role": "user", "content": "Hi.\n\nIt is late."},
    ]
    assert rendered(brief, ASKED, strict=True) == [brief, ASKED]


def test_marks_are_at_the_ends_of_their_blocks() -> None:
    tools = [{"name": "look", "input_schema": {}}, {"name": "b", "input_schema": {}}]
    assert marks(
        user(text("one ", FIVE), text("two")),
        assistant(text("I look.", FIVE), call("a")),
        user(result("a", [text("o", FIVE), text("k")])),
        tools=[tools[0], {**tools[1], "cache_control": HOUR}],
    ) == [
        (Mark(tool=1), 3600.0),
        (Mark(0, 4), 300.0),
        (Mark(1, 7), 300.0),
        (Mark(2, 1), 300.0),
    ]
    assert marks(
        ASKED,
        assistant(call("a"), call("b", FIVE)),
        user(result("a", "1", FIVE), result("b", "no", HOUR, is_error=True)),
        system=[text("Be "), text("brief.", HOUR)],
    ) == [
        (Mark(0, 9), 3600.0),
        (Mark(2), 300.0),
        (Mark(3), 300.0),
        (Mark(4), 3600.0),
    ]


def test_a_mark_in_an_error_is_after_the_word_for_it() -> None:
    failed = result("a", [text("no", FIVE), text("pe")], is_error=True)
    assert marks(ASKED, assistant(call("a")), user(failed)) == [(Mark(2, 9), 300.0)]


def test_the_automatic_mark_is_the_last_messages_end() -> None:
    assert marks(ASKED, cache_control=HOUR) == [(Mark(0), 3600.0)]
    assert marks(ASKED, cache_control=FIVE, system="x") == [(Mark(1), 300.0)]
    assert marks(user(text("Hi.", FIVE)), cache_control=HOUR) == [(Mark(0, 3), 300.0)]


def options(server: Running, **fields: Any) -> ChatOptions:
    """How a conversation was made ready."""
    body = {"max_tokens": 5, "messages": [ASKED], **fields}
    response = server.post("/v1/messages", body)
    assert response.status_code == 200, response.text
    return server.engine.text.prompts[-1][0]


def test_an_answer_goes_on_with_the_assistants_last_words(server: Running) -> None:
    begun = [ASKED, assistant(text("The answer is"))]
    assert options(server, messages=begun) == ChatOptions(False, True)
    assert options(server) == ChatOptions(True, False)
    empty = [ASKED, {"role": "assistant", "content": ""}]
    assert options(server, messages=empty) == ChatOptions(True, False)
    assert server.engine.text.chats[-1][0] == [ASKED]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_only_answers_of_the_same_namespace_are_looked_for(server: Running, path: str) -> None:
    sent = {"messages": [ASKED], "cache_salt": "mine"}
    more = {"max_tokens": 5} if path == "/v1/messages" else {}
    assert server.post(path, {**sent, **more}).status_code == 200
    assert server.engine.text.prompts[-1][1] == Namespace(salt="mine")


def test_the_template_is_told_whether_to_think(server: Running) -> None:
    def variables(**fields: Any) -> Any:
        return options(server, **fields).variables

    assert variables(thinking={"type": "disabled"}) == {"enable_thinking": False}
    for kind in ("adaptive", "between_tools"):
        assert variables(thinking={"type": kind}) == {"enable_thinking": True}
    enabled = {"type": "enabled", "budget_tokens": 1024}
    assert variables(thinking=enabled) == {"enable_thinking": True}
    assert variables() == {}
    assert variables(output_config={"effort": "low"}) == {"reasoning_effort": "low"}
    assert variables(output_config={"effort": "max"}) == {"reasoning_effort": "high"}


def test_tools_reach_the_template_in_its_own_form(server: Running) -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    tools = [
        {"cache_control": FIVE, "input_schema": schema, "description": "Looks.", "name": "look"},
        {"type": "custom", "name": "bare", "input_schema": {}, "strict": False},
    ]
    options(server, tools=tools)
    assert server.engine.text.chats[-1][1] == [
        {
            "type": "function",
            "function": {"name": "look", "description": "Looks.", "parameters": schema},
        },
        {"type": "function", "function": {"name": "bare", "parameters": {}}},
    ]


def test_what_has_no_effect_is_named(server: Running) -> None:
    sent = {
        "max_tokens": 5,
        "messages": [ASKED, assistant({**text("x"), "citations": []}, {"type": "redacted_thinking",
                                                                      "data": ""}), ASKED],
        "system": [text("Be brief.", {**FIVE, "scope": "global"})],
        "tools": [
            {"name": "a", "input_schema": {}, "strict": True, "eager_input_streaming": True},
            {"name": "b", "input_schema": {}, "strict": True, "defer_loading": False},
        ],
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "context_management": {"edits": []},
        "metadata": {"user_id": "u"},
        "mcp_servers": [],
        "service_tier": "auto",
    }  # fmt: skip
    response = server.post("/v1/messages", sent)
    assert response.headers["x-ignored-fields"].split(", ") == [
        "context_management",
        "mcp_servers",
        "service_tier",
        "tools.strict",
        "content.citations",
        "redacted_thinking",
        "thinking.budget_tokens",
        "cache_control.scope",
    ]
    assert (
        "x-ignored-fields"
        not in server.post("/v1/messages", {"max_tokens": 5, "messages": [ASKED]}).headers
    )


def test_what_the_template_does_not_look_at_is_named(server: Running) -> None:
    codec = server.engine.text
    known = codec.known_variables
    codec.takes_tools, codec.known_variables = False, ()
    try:
        sent = {
            "messages": [ASKED],
            "tools": [{"name": "a", "input_schema": {}}],
            "thinking": {"type": "disabled"},
            "output_config": {"effort": "low"},
        }
        for path, more in (("/v1/messages", {"max_tokens": 5}), ("/v1/messages/count_tokens", {})):
            ignored = server.post(path, {**sent, **more}).headers["x-ignored-fields"]
            assert ignored == "tools, thinking, output_config.effort"
        assert codec.prompts[-1][0].variables == {}
    finally:
        codec.takes_tools, codec.known_variables = True, known
