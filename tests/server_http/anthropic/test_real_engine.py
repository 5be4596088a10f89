"""A real engine behind Anthropic's client: what ends answers, counts, turns, noise and sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic
import pytest

from server.http.noise import NOISE_HEADER
from server.http.settings import HttpSettings
from tests.server.forcing import force
from tests.server_http.anthropic.talking import (
    BLOCK,
    CONTEXT,
    TEMPLATE,
    TOOLS,
    Talk,
    make_folder,
    talking,
)
from tests.server_http.keys import ACME, BETA, ring

FIVE = {"type": "ephemeral"}
ASKED: list[dict[str, Any]] = [{"role": "user", "content": "What is the weather in Paris?"}]
CALLS = '<think>\nParis.\n</think>\n\nI look.\n<tool_call>\n{"name": "weather", "arguments": '
CALLS += '{"city": "Paris"}}\n</tool_call>'


def texts(message: anthropic.types.Message) -> str:
    return "".join(each.text for each in message.content if each.type == "text")


def test_an_answer_ends_by_itself(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    body = talk.will_say(monkeypatch, "It is warm.", messages=ASKED)
    message = talk.client.messages.create(**body)
    assert (texts(message), message.stop_reason) == ("It is warm.", "end_turn")
    cut = talk.client.messages.create(**{**body, "max_tokens": 3})
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 3)


def test_a_stop_sequence_ends_an_answer_and_is_told(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = talk.will_say(monkeypatch, "It is warm. END of it.", messages=ASKED)
    body["stop_sequences"] = ["never", " END"]
    message = talk.client.messages.create(**body)
    assert texts(message) == "It is warm."
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " END")
    with talk.client.messages.stream(**body) as stream:
        final = stream.get_final_message()
    assert texts(final) == "It is warm."
    assert (final.stop_reason, final.stop_sequence) == ("stop_sequence", " END")


def test_a_stop_sequence_after_a_call_is_no_end_by_itself(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = talk.will_say(monkeypatch, CALLS + " END", messages=ASKED, tools=TOOLS)
    message = talk.client.messages.create(**body)
    assert message.stop_reason == "tool_use"
    message = talk.client.messages.create(**body, stop_sequences=["END"])
    assert message.stop_reason == "stop_sequence"


def test_the_cache_is_told_of_the_path_of_an_answer_that_uses_a_tool(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[int] = []
    cache: Any = talk.engine._cache
    monkeypatch.setattr(cache, "note_tool_call", lambda lease: paths.append(lease.num_tokens))
    body = talk.will_say(monkeypatch, CALLS, messages=ASKED, tools=TOOLS)
    usage = talk.client.messages.create(**body).usage
    talk.engine.audit()  # after all that was posted before
    computed = usage.input_tokens + (usage.cache_read_input_tokens or 0) + usage.output_tokens - 1
    assert paths == [computed // BLOCK * BLOCK]
    talk.client.messages.create(**talk.will_say(monkeypatch, "No.", messages=ASKED, tools=TOOLS))
    talk.engine.audit()
    assert len(paths) == 1


def test_the_end_of_the_context_is_told(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    long = [{"role": "user", "content": "x" * (CONTEXT - 60)}]
    left = CONTEXT - talk.count(messages=long)
    assert 0 < left < 60
    force(talk.engine, monkeypatch, CONTEXT - left, talk.engine.text.encode("for ever"))
    full = talk.ask(messages=long, max_tokens=left + 1)
    assert full.stop_reason == "model_context_window_exceeded"
    assert full.usage.output_tokens == left
    for most in (left, left - 1):
        assert talk.ask(messages=long, max_tokens=most).stop_reason == "max_tokens"


def test_a_tool_loop_finds_its_past_and_counts_are_exact(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields: dict[str, Any] = {"system": "Be brief.", "tools": TOOLS, "messages": ASKED}
    first = talk.client.messages.create(**talk.will_say(monkeypatch, CALLS, **fields))
    assert [each.type for each in first.content] == ["thinking", "text", "tool_use"]
    assert first.stop_reason == "tool_use"
    stored = first.usage.input_tokens + first.usage.output_tokens - 1
    call = first.content[2]
    assert call.type == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "20 degrees"}
    after = [*ASKED, first.to_param(), {"role": "user", "content": [result]}]
    fields["messages"] = after
    second = talk.client.messages.create(**talk.will_say(monkeypatch, "Warm.", **fields))
    assert texts(second) == "Warm."
    usage = second.usage
    assert usage.cache_read_input_tokens is not None
    assert usage.cache_read_input_tokens >= stored // BLOCK * BLOCK
    assert usage.cache_read_input_tokens + usage.input_tokens == talk.count(**fields)


def test_a_forced_call(talk: Talk) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    message = talk.ask(
        messages=ASKED,
        tools=[*TOOLS, {"name": "other", "input_schema": schema}],
        tool_choice={"type": "tool", "name": "other"},
        thinking={"type": "disabled"},
        max_tokens=300,
    )
    (call,) = message.content
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("other", {"city": "Oslo"})
    assert message.stop_reason == "tool_use"


def test_an_answer_goes_on_where_the_last_message_ends(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = [*ASKED, {"role": "assistant", "content": "It is"}]
    body = talk.will_say(monkeypatch, " warm.", messages=begun)
    assert texts(talk.client.messages.create(**body)) == " warm."
    whole = talk.engine.text.chat_text([*ASKED, {"role": "assistant", "content": "It is"}])
    assert talk.count(messages=begun) < talk.tokens(whole)


def test_thoughts_are_switched_off_by_the_template(talk: Talk) -> None:
    more = talk.tokens("<think>\n\n</think>\n\n")
    off = talk.count(messages=ASKED, thinking={"type": "disabled"})
    assert off == talk.count(messages=ASKED) + more


def test_the_line_that_claude_code_writes_costs_nobody_the_cache(talk: Talk) -> None:
    def system(number: int) -> list[dict[str, Any]]:
        billing = f"x-anthropic-billing-header: cc_version=2.1; cch={number:05x};"
        words = "You are an agent that helps with code. " * 3
        return [
            {"type": "text", "text": billing},
            {"type": "text", "text": words, "cache_control": FIVE},
        ]

    first = talk.client.messages.with_raw_response.create(
        **talk.body(system=system(1), messages=ASKED)
    )
    assert first.headers[NOISE_HEADER] == "1"
    written = first.parse().usage.cache_creation_input_tokens
    assert written is not None
    assert written > 3 * BLOCK
    second = talk.ask(system=system(2), messages=ASKED)
    assert second.usage.cache_creation_input_tokens == 0
    assert second.usage.cache_read_input_tokens is not None
    assert second.usage.cache_read_input_tokens >= written
    assert talk.count(system=system(3), messages=ASKED) == talk.count(
        system=system(1)[1:], messages=ASKED
    )


def test_a_session_is_named_by_claude_codes_header(talk: Talk) -> None:
    fields = {"system": "A system prompt of some words, and some more.", "messages": ASKED}
    headers = {"x-claude-code-session-id": "session-7"}
    talk.ask(**fields, cache_control=FIVE, extra_headers=headers)
    assert [each["session"] for each in talk.retained()] == ["session-7"]
    names = [each.name for each in talk.engine.cache_control.sessions(None)]
    assert names == ["session-7"]


def test_where_nothing_can_be_retained_marks_have_no_effect(folder: Path) -> None:
    with talking(folder, index="hash") as talk:
        marked = [{"type": "text", "text": "word " * 20, "cache_control": FIVE}]
        fields = {"system": marked, "messages": ASKED}
        for _ in range(2):
            raw = talk.client.messages.with_raw_response.create(**talk.body(**fields))
            assert raw.headers["x-ignored-fields"] == "cache_control"
            usage = raw.parse().usage
            assert usage.cache_creation_input_tokens == 0
        assert usage.cache_read_input_tokens is not None
        assert usage.cache_read_input_tokens > BLOCK


STRICT = TEMPLATE.replace(
    "{% for m in messages %}",
    "{% for m in messages %}{% if loop.previtem and loop.previtem.role == 'tool' "
    "and m.role == 'user' %}{{ raise_exception('no user after a tool') }}{% endif %}",
    1,
)


def test_a_template_that_takes_no_words_after_results_gets_them_in_the_last(
    tmp_path: Path,
) -> None:
    call = {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Paris"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "20 degrees"}
    words = {"type": "text", "text": "Be brief.", "cache_control": FIVE}
    fields: dict[str, Any] = {
        "tools": TOOLS,
        "messages": [
            *ASKED,
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result, words]},
        ],
    }
    with talking(make_folder(tmp_path / "strict", STRICT)) as talk:
        message = talk.ask(**fields)
        assert message.usage.cache_creation_input_tokens is not None
        total = talk.count(**fields)
        assert total - 2 * BLOCK < message.usage.cache_creation_input_tokens < total


def test_another_name_of_the_model(folder: Path) -> None:
    settings = HttpSettings(model_aliases=("claude-*", "gpt-4o", "llama-3.1"))
    with talking(folder, settings) as talk:
        for name in ("claude-x-4-5[1m]", "claude-", "gpt-4o", "tiny"):
            message = talk.ask(messages=ASKED, model=name)
            assert message.model == "tiny"
            counted = {"model": name, "messages": ASKED}
            counting = talk.http.post("/v1/messages/count_tokens", json=counted)
            assert counting.json()["input_tokens"] == talk.count(messages=ASKED)
            chat = {"model": name, "messages": ASKED, "max_tokens": 1}
            assert talk.http.post("/v1/chat/completions", json=chat).json()["model"] == "tiny"
            assert talk.http.get(f"/v1/models/{name}").json()["id"] == "tiny"
        for name in ("other", "claude", "gpt-4o-mini", "my-claude-x", "llama-3x1"):
            with pytest.raises(anthropic.NotFoundError):
                talk.ask(messages=ASKED, model=name)
            chat = {"model": name, "messages": ASKED, "max_tokens": 1}
            assert talk.http.post("/v1/chat/completions", json=chat).status_code == 404


def test_tenants_do_not_share_and_nothing_in_a_body_changes_that(
    folder: Path, tmp_path: Path
) -> None:
    fields = {"system": "A system prompt of some words, and then some more.", "messages": ASKED}
    with talking(folder, HttpSettings(keys=ring(tmp_path))) as talk:

        def read(key: str, **extra: Any) -> int | None:
            message = talk.client.with_options(api_key=key).messages.create(
                **talk.body(**fields, extra_body=extra)
            )
            usage: anthropic.types.Usage = message.usage
            return usage.cache_read_input_tokens

        assert read(ACME) == 0
        assert read(BETA, tenant="acme", namespace={"tenant": "acme"}) == 0
        assert read(ACME) == read(BETA) != 0
