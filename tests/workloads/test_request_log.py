"""Logs of OpenAI-style requests as sessions: the prompts of the replay are those of the log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.workloads.trace_files import array_file, lines_file
from workloads.traces.lines import TraceError
from workloads.traces.reading import read_rows, select_sessions
from workloads.traces.session import Message, Session, after_reply, prompt_of

SYSTEM = {"role": "system", "content": "rules"}


def ask(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def say(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def chat(*messages: dict[str, Any], **fields: object) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **fields}


def answer(text: str) -> dict[str, Any]:
    return {"object": "chat.completion", "choices": [{"index": 0, "message": say(text)}]}


def sent(session: Session) -> list[tuple[Message, ...]]:
    """What a replay sends, where the engine answers nothing of its own."""
    history: tuple[Message, ...] = ()
    prompts = []
    for call in session.calls:
        prompt = prompt_of(history, call)
        prompts.append(prompt)
        history = after_reply(prompt, call, "(own)")
    return prompts


def prompts_of(session: Session) -> list[list[str]]:
    """The same without the roles."""
    return [[message.content for message in prompt] for prompt in sent(session)]


FIRST = chat(SYSTEM, ask("one"))
SECOND = chat(SYSTEM, ask("one"), say("1"), ask("two"))
FORMS: dict[str, Callable[[object, object], object]] = {
    "body": lambda body, reply: body,
    "request": lambda body, reply: {"request": body, "response": reply},
    "body beside": lambda body, reply: {"body": body, "response": reply},
    "batch file": lambda body, reply: {
        "custom_id": "r",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": body,
        "response": {"status_code": 200, "request_id": "q", "body": reply},
    },
    "text": lambda body, reply: {"request": json.dumps(body), "response": json.dumps(reply)},
    "nested": lambda body, reply: {"request": {"headers": {}, "body": body}, "response": reply},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_chat_is_one_session_in_every_form_of_row(tmp_path: Path, form: str) -> None:
    make = FORMS[form]
    rows = make(FIRST, answer("1")), make(SECOND, answer("2"))
    for path in (lines_file(tmp_path, *rows), array_file(tmp_path, *rows)):
        (session,) = select_sessions(path, 9).sessions
        assert [call.reset for call in session.calls] == [True, False]
        assert session.calls[1].messages == (Message("user", "two"),)
        assert prompts_of(session) == [["rules", "one"], ["rules", "one", "1", "two"]]
        # Without a response, the next prompt tells the reply; nothing tells the last one's.
        assert session.calls[0].reply == "1"
        assert session.calls[1].reply == (None if form == "body" else "2")


def test_sessions_without_a_name_go_by_the_longest_prompt_that_one_begins_with(
    tmp_path: Path,
) -> None:
    rows = [
        chat(SYSTEM, ask("a")),
        chat(SYSTEM, ask("b")),
        chat(SYSTEM, ask("b"), say("B"), ask("bb")),
        chat(SYSTEM, ask("a"), say("A"), ask("aa")),
        chat(SYSTEM, ask("a"), say("A"), ask("aa"), say("AA"), ask("aaa")),
        chat(SYSTEM, ask("c")),
    ]
    sessions = select_sessions(lines_file(tmp_path, *rows), 9).sessions
    assert [[prompt[-1] for prompt in prompts_of(each)] for each in sessions] == [
        ["a", "aa", "aaa"],
        ["b", "bb"],
        ["c"],
    ]


def test_two_equal_first_prompts_are_told_apart_by_their_replies(tmp_path: Path) -> None:
    rows = [
        {"request": FIRST, "response": answer("x")},
        {"request": FIRST, "response": answer("y")},
        {"request": chat(SYSTEM, ask("one"), say("x"), ask("X")), "response": None},
        {"request": chat(SYSTEM, ask("one"), say("y"), ask("Y")), "response": None},
    ]
    sessions = select_sessions(lines_file(tmp_path, *rows), 9).sessions
    assert [prompts_of(each)[1][-1] for each in sessions] == ["X", "Y"]
    assert [each.calls[0].reply for each in sessions] == ["x", "y"]


@pytest.mark.parametrize(
    "name",
    [
        {"session_id": "s"},
        {"metadata": {"conversation_id": "s"}},
        {"headers": {"X-Session-Id": "s"}},
        {"request_fields": {"prompt_cache_key": "s"}},
        {"request_fields": {"user": "s"}},
        {"request_fields": {"metadata": {"session_id": "s"}, "user": "t"}},
    ],
)
def test_a_session_goes_by_the_field_that_names_it(
    tmp_path: Path, name: dict[str, dict[str, object]]
) -> None:
    row_fields = dict(name)
    extra = row_fields.pop("request_fields", {})
    rows = [{"request": {**body, **extra}, **row_fields} for body in (FIRST, chat(ask("other")))]
    (session,) = select_sessions(lines_file(tmp_path, *rows), 9).sessions
    assert session.id == "s"
    assert prompts_of(session) == [["rules", "one"], ["other"]]


def test_a_history_that_was_changed_is_sent_whole(tmp_path: Path) -> None:
    rows = [
        {"user": "u", **FIRST},
        {"user": "u", **chat(SYSTEM, ask("one"), ask("two"))},  # the reply was left out
        {"user": "u", **chat(SYSTEM, ask("one"), ask("two"), ask("three"), ask("four"))},
        {"user": "u", **chat(SYSTEM, ask("summary"), say("ok"), ask("three"))},
    ]
    (session,) = select_sessions(lines_file(tmp_path, *rows), 9).sessions
    assert [call.reset for call in session.calls] == [True] * 4
    assert prompts_of(session)[1:] == [
        ["rules", "one", "two"],
        ["rules", "one", "two", "three", "four"],
        ["rules", "summary", "ok", "three"],
    ]


def test_the_history_says_what_was_answered_where_the_response_says_otherwise(
    tmp_path: Path,
) -> None:
    rows = [{"request": FIRST, "response": answer(" 1 ")}, {"request": SECOND}]
    (session,) = select_sessions(lines_file(tmp_path, *rows), 9).sessions
    assert session.calls[0].reply == "1"
    assert prompts_of(session)[1] == ["rules", "one", "1", "two"]


def test_completions_are_raw_and_whole_and_several_prompts_are_several_calls(
    tmp_path: Path,
) -> None:
    rows = [
        {"request": {"prompt": "abc"}, "response": {"choices": [{"text": "d"}]}},
        {"prompt": ["e", "f"]},
    ]
    sessions = select_sessions(lines_file(tmp_path, *rows), 9).sessions
    calls = [call for session in sessions for call in session.calls]
    assert [(c.messages[0].content, c.reply, c.raw, c.reset) for c in calls] == [
        ("abc", "d", True, True),
        ("e", None, True, True),
        ("f", None, True, True),
    ]
    assert len({session.id for session in sessions}) == 3


def test_tools_and_tool_calls_are_part_of_the_prompt(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "add"}}]
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "1", "content": "2"}
    rows = [
        {
            "request": chat(SYSTEM, ask("one"), tools=tools),
            "response": {"choices": [{"message": calling}]},
        },
        {"request": chat(SYSTEM, ask("one"), calling, result, tools=tools)},
        {"request": chat(ask("one"), tools=tools)},
    ]
    chosen = select_sessions(lines_file(tmp_path, *rows), 9)
    first, second = chosen.sessions
    head = '# Tools\n{"type":"function","function":{"name":"add"}}'
    assert prompts_of(first)[1] == [
        "rules\n\n" + head,
        "one",
        '{"name":"add","arguments":"{\\"a\\":1}"}',
        "Tool result:\n2",
    ]
    assert [call.reset for call in first.calls] == [True, False]
    assert prompts_of(second) == [[head, "one"]]
    assert chosen.mapped_roles == {"tool": 1}


def test_parts_of_text_are_joined_and_others_are_counted(tmp_path: Path) -> None:
    parts = [
        {"type": "text", "text": "what "},
        {"type": "image_url", "image_url": {"url": "data:"}},
        {"type": "text", "text": "is it"},
    ]
    chosen = select_sessions(
        lines_file(tmp_path, chat({"role": "developer", "content": "d"}, ask(parts))),  # type: ignore[arg-type]
        9,
    )
    assert prompts_of(chosen.sessions[0]) == [["d", "what is it"]]
    assert chosen.ignored_fields == {"content of type image_url": 1}


def test_times_of_any_form_become_starts_and_pauses(tmp_path: Path) -> None:
    rows = [
        {"timestamp": "2026-01-01T00:00:10Z", "latency_ms": 1500, "request": FIRST},
        {"timestamp": "2026-01-01T01:00:12+01:00", "request": chat(ask("x"))},
        {"timestamp": 1767225615.0, "request": SECOND},  # 00:00:15
        {"created": 1767225616000, "request": chat(ask("x"), say("y"), ask("z"))},  # milliseconds
    ]
    first, second = select_sessions(lines_file(tmp_path, *rows), 9).sessions
    assert first.timed
    assert second.timed
    assert (first.arrival_s, second.arrival_s) == (0.0, 2.0)
    assert [call.think_s for call in first.calls] == [0.0, 3.5]
    assert [call.think_s for call in second.calls] == [0.0, 4.0]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"request": 5}, "request must be an object, is a number"),
        ({"request": "{"}, "request: not JSON"),
        ({"request": {"body": []}}, "request.body must be an object, is a list"),
        ({"request": {"model": "m"}}, "request.messages must be a list with at least one"),
        ({"body": chat({"role": "user", "content": 1})}, r"body.messages\[0\].content must be"),
        ({"messages": [{"content": "x"}]}, r"messages\[0\].role must be a string, is null"),
        ({"messages": [5]}, r"messages\[0\] must be an object"),
        ({"prompt": [1, 2]}, "prompt must be text or a list of texts; token ids"),
        ({**FIRST, "timestamp": "noon"}, "timestamp must be a number or a date .* 'noon'"),
        ({**FIRST, "created": True}, "created must be a number, is a boolean"),
        ({**FIRST, "latency_ms": "1"}, "latency_ms must be a number, is a string"),
        ({**FIRST, "user": 1.5}, "user must be a string, is a number"),
        ({**FIRST, "tools": "add"}, "tools must be a list, is a string"),
        ({"request": FIRST, "response": {"choices": [1]}}, "response: choices must be a list of"),
        ({"request": FIRST, "response": {"choices": [{}]}}, r"response: choices\[0\] has neither"),
        ({"inputs": "text"}, "has neither request, body, messages nor prompt"),
    ],
)
def test_what_is_out_of_form_is_refused_with_its_line_and_field(
    tmp_path: Path, bad: dict[str, object], message: str
) -> None:
    with pytest.raises(TraceError, match=rf"t\.jsonl, line 2: {message}"):
        list(read_rows(lines_file(tmp_path, FIRST, bad)))


def test_requests_of_other_kinds_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [{"request": {"model": "e", "input": "text"}}, FIRST, {"model": "e", "input": ["a"]}]
    chosen = select_sessions(lines_file(tmp_path, *rows), 9)
    assert [prompts_of(session) for session in chosen.sessions] == [[["rules", "one"]]]
    why = "requests that have an input in place of messages or a prompt"
    assert chosen.ignored_fields == {why: 2}


def test_errors_and_answers_that_are_no_json_leave_the_reply_open(tmp_path: Path) -> None:
    rows = [
        {"request": FIRST, "response": {"error": {"message": "busy"}}},
        {"request": chat(ask("x")), "response": 'data: {"choices": []}'},
    ]
    chosen = select_sessions(lines_file(tmp_path, *rows), 9)
    assert [session.calls[0].reply for session in chosen.sessions] == [None, None]
    assert chosen.ignored_fields == {"response (not JSON)": 1}


words = st.sampled_from(["a", "b", ""])
messages = st.lists(
    st.builds(
        lambda role, text: {"role": role, "content": text},
        st.sampled_from(["user", "assistant", "system"]),
        words,
    ),
    min_size=1,
    max_size=5,
)
logs = st.lists(
    st.tuples(messages, st.none() | words, st.none() | st.sampled_from(["u", "v"])), min_size=1
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=logs)
def test_whatever_the_log_the_replay_sends_its_prompts(
    tmp_path: Path, log: list[tuple[list[dict[str, str]], str | None, str | None]]
) -> None:
    rows = [
        {
            "request": chat(*prompt, **({} if user is None else {"user": user})),
            "response": None if reply is None else answer(reply),
        }
        for prompt, reply, user in log
    ]
    sessions = select_sessions(lines_file(tmp_path, *rows), 99).sessions
    replayed = [prompt for session in sessions for prompt in sent(session)]
    logged = [tuple(Message(m["role"], m["content"]) for m in prompt) for prompt, _, _ in log]
    assert Counter(replayed) == Counter(logged)
