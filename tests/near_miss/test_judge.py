"""What is a near-miss, where it is, what kind and what it costs; and what is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from radix_engine.cache import DEFAULT, Branch, Namespace, pack
from server.near_miss import Finding, PromptSource, judge
from server.token_text import TokenText
from tests.near_miss.replaying import (
    Replaying,
    assistant,
    call,
    prose,
    rendered,
    system,
    user,
)

RULES = prose(1, 600)  # some thousand tokens


def found(finding: Finding | None) -> Finding:
    assert finding is not None
    return finding


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("clock", "2026-11-30T19:02:30Z", "2026-11-30T19:02:41Z"),
        ("clock", "2026-11-30 19:02", "2026-12-01 08:15"),
        ("clock", "Mon Nov 30 19:02:30 UTC 2026", "Mon Nov 30 19:02:31 UTC 2026"),
        ("clock", "7:02 PM", "7:15 PM"),
        ("clock", "1796065350", "1796065351"),
        ("date", "2026-11-30", "2026-11-29"),
        ("date", "Monday, November 30, 2026", "Monday, November 23, 2026"),
        ("date", "30.11.2026", "31.11.2026"),
        ("uuid", "550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440001"),
        ("hex", "9f86d081884c7d65", "9f86d081884c7d66"),
        ("id", "req_8fKq2LmZ0pXw", "req_8fKq2LmZ9aaw"),
        ("number", "17", "18"),
        ("other", "Anna", "Berta"),
    ],
)
def test_what_changes_in_a_system_prompt_is_named_with_its_place(
    kind: str, one: str, other: str
) -> None:
    replaying = Replaying()
    head = "You are an agent. It is "
    texts = [f"{head}{each}. {RULES}" for each in (one, other)]
    assert replaying.ask([system(texts[0]), user("Hello")]) is None
    finding = found(replaying.ask([system(texts[1]), user("Hello")]))
    assert finding.kind == kind
    assert (finding.section.kind, finding.section.message) == ("system", 0)
    assert finding.first == len(head)
    assert finding.here.rstrip(".") == other
    assert finding.stored.rstrip(".") == one
    # A byte is a token; a mark, the role and a line's end come before the text.
    shared = next(
        place for place in range(99) if one[place : place + 1] != other[place : place + 1]
    )
    assert finding.position == len("\x01system\n") + len(head) + shared
    rest = f". {RULES}\x02\n\x01user\nHello\x02\n\x01assistant\n"
    whole = len(rendered([system(texts[0]), user("Hello")])) // 16 * 16  # what is stored
    tail = len(f"\x01system\n{head}{one}")
    assert abs(finding.lost_tokens - min(len(rest), whole - tail)) <= len(one)


def test_a_time_in_one_place_has_one_shape_whichever_of_its_digits_differs() -> None:
    replaying = Replaying()
    times = ("19:02:30", "19:02:31", "19:45:00", "08:00:00")
    asked = [
        replaying.ask([system(f"It is {time}. {RULES}"), user("Hello")], namespace=Namespace())
        for time in times
    ]
    findings = [found(each) for each in asked[1:]]
    assert len({each.shape for each in findings}) == 1
    assert len({each.position for each in findings}) > 1
    elsewhere = Replaying()
    for time in times[:2]:
        last = elsewhere.ask([system(f"It's {time}. {RULES}"), user("Hello")])
    assert found(last).shape != findings[0].shape


def test_tenants_do_not_share_a_shape() -> None:
    shapes = set()
    for tenant in ("acme", "beta"):
        replaying = Replaying()
        for time in ("19:02:30", "19:02:31"):
            prompt = [system(f"It is {time}. {RULES}"), user("Hello")]
            last = replaying.ask(prompt, namespace=Namespace(tenant))
        shapes.add(found(last).shape)
    assert len(shapes) == 2


def test_other_questions_after_the_same_head_are_none() -> None:
    replaying = Replaying()
    for question in range(8):
        asked = [system(RULES), user(f"{prose(question + 10)}? Answer in a word.")]
        assert replaying.ask(asked) is None


def test_other_questions_that_end_alike_are_none() -> None:
    replaying = Replaying()
    for question in range(4):
        asked = [system(RULES), user(f"Question {question + 5}: {prose(question)} {prose(99)}")]
        assert replaying.ask(asked) is None


def test_other_conversations_that_come_with_their_history_are_none() -> None:
    replaying = Replaying()
    reminder = prose(98, 20)  # which clients put into each message
    for number in range(20, 50, 10):
        asked = [system(RULES)]
        for turn in range(4):
            asked += [user(f"{prose(number + turn)} {reminder}"), assistant(prose(-number - turn))]
        assert replaying.ask([*asked, user("And now?")]) is None


def test_a_compacted_history_is_none() -> None:
    turns = [each for turn in range(9) for each in (user(prose(turn)), assistant(prose(-turn)))]
    summary = user("Summary of what was said: " + prose(77, 20))
    for kept in ([assistant("Yes.")], turns[-6:]):  # some clients keep the last turns as they were
        replaying = Replaying()
        assert replaying.ask([system(RULES), *turns, user("Go on")]) is None
        assert replaying.ask([system(RULES), summary, *kept, user("Go on")]) is None


def test_an_edited_history_is_told_where_the_rest_stays() -> None:
    replaying = Replaying()
    turns = [each for turn in range(4) for each in (user(prose(turn)), assistant(prose(-turn)))]
    assert replaying.ask([system("Be kind."), *turns, user("Go on")]) is None
    edited = [*turns]
    edited[2] = user(turns[2]["content"].replace("w1x", "changed ", 1))
    finding = found(replaying.ask([system("Be kind."), *edited, user("Go on")]))
    assert finding.kind == "history"
    assert (finding.section.role, finding.section.message) == ("user", 3)
    after = rendered([*turns[3:], user("Go on")])
    assert 0 <= finding.lost_tokens - len(after) <= len(turns[2]["content"]) + 16


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"city": "Paris", "days": 3}', '{"city":"Paris","days":3}'),
        ('{"city": "Paris", "days": 3}', '{"days": 3, "city": "Paris"}'),
        ('{"city": "M\\u00fcnchen", "days": 3}', '{"city": "München", "days": 3}'),
        ('{"a": {"b": 1, "c": 2}}', '{"a": {"c": 2, "b": 1}}'),
        ('{"a": "{\\"b\\": 1}"}', '{"a": "{\\"b\\":1}"}'),
    ],
)
def test_a_call_that_is_written_in_another_way_is_told(one: str, other: str) -> None:
    replaying = Replaying()
    answers: list[Finding | None] = []
    for arguments in (one, other):
        called = assistant("I will look.", tool_calls=[call(arguments)])
        result = {"role": "tool", "content": prose(5)}
        asked = [system(RULES), user("Look it up"), called, result]
        answers.append(replaying.ask(asked))
    finding = found(answers[1])
    assert finding.kind == "json_form"
    assert (finding.section.role, finding.section.message) == ("assistant", 2)
    assert finding.lost_tokens >= len(prose(5)) - 16


def test_a_call_that_says_something_else_is_an_edit() -> None:
    replaying = Replaying()
    for arguments in ('{"city": "Paris"}', '{"city": "Oslo"}'):
        called = assistant("I will look.", tool_calls=[call(arguments)])
        result = {"role": "tool", "content": prose(5)}
        finding = replaying.ask([system("Be kind."), user("Look"), called, result])
    assert found(finding).kind == "history"


def tool(name: str, **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    function = {"name": name, "description": prose(len(name), 12), "parameters": parameters}
    return {"type": "function", "function": {**function, **more}}


TOOLS = [tool("search"), tool("read"), tool("weather_of_a_city"), tool("write_it")]


def test_the_same_tools_in_another_order_are_told() -> None:
    replaying = Replaying()
    assert replaying.ask([system("Be kind."), user("Hello")], TOOLS) is None
    other = [TOOLS[0], TOOLS[2], TOOLS[1], TOOLS[3]]
    finding = found(replaying.ask([system("Be kind."), user("Anything else")], other))
    assert finding.kind == "tool_order"
    assert (finding.section.kind, finding.section.name) == ("tools", "tools section")
    # All of the tools after the place count, and the end of the system's message.
    behind = sum(len(json.dumps(each)) + 1 for each in other[1:])
    assert behind - 60 <= finding.lost_tokens <= behind + 16


def test_another_tool_among_the_same_is_told_as_such() -> None:
    replaying = Replaying()
    replaying.ask([system("Be kind."), user("Hello")], TOOLS)
    other = [TOOLS[0], tool("brand_new"), *TOOLS[1:]]
    assert found(replaying.ask([system("Be kind."), user("Hello")], other)).kind == "tools"


def test_tools_with_their_keys_in_another_order_are_told_as_json() -> None:
    replaying = Replaying()
    replaying.ask([system("Be kind."), user("Hello")], TOOLS)
    function = dict(reversed(TOOLS[1]["function"].items()))
    other = [TOOLS[0], {"type": "function", "function": function}, *TOOLS[2:]]
    assert found(replaying.ask([system("Be kind."), user("Hello")], other)).kind == "json_form"


def test_what_the_template_writes_is_told_as_its_own() -> None:
    replaying = Replaying()
    for date in ("30 Nov 2026", "29 Nov 2026"):
        messages = [system(RULES), user("Hello")]
        text = f"Today Date: {date}\n" + rendered(messages)
        finding = replaying.prompt(text, PromptSource(text, messages))
    assert found(finding).kind == "date"
    assert found(finding).section.kind == "template"


def test_a_time_in_the_last_message_is_told_and_a_number_there_is_not() -> None:
    for kind, texts in (("clock", ("19:02:30", "19:02:31")), (None, ("item 17", "item 18"))):
        replaying = Replaying()
        for text in texts:
            finding = replaying.ask([system("Be kind."), user(f"{text}: {prose(3)}")])
        assert (finding and finding.kind) == kind


def test_a_prompt_without_messages_is_looked_at_too() -> None:
    replaying = Replaying()
    for time in ("19:02:30", "19:02:31"):
        text = f"Log of {time}\n{RULES}"
        known = replaying.prompt(text, PromptSource(text))
    assert found(known).kind == "clock"
    assert (found(known).section.kind, found(known).first) == ("prompt", len("Log of "))
    unknown = replaying.prompt(f"Log of 19:02:32\n{RULES}", PromptSource())  # token ids alone
    assert found(unknown).shape == found(known).shape


def test_less_than_64_lost_tokens_are_none() -> None:
    for rest, is_told in ((40, False), (200, True)):
        replaying = Replaying()
        for time in ("19:02:30", "19:02:31"):
            text = f"It is {time}: {'abcdefghij' * (rest // 10)}"
            finding = replaying.prompt(text, PromptSource(text))
        assert (finding is not None) == is_told


class Fours:
    """Four characters a token."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        parts = [text[start : start + 4] for start in range(0, len(text), 4)]
        return [self.known.setdefault(part, len(self.known)) for part in parts]

    def token_text(self, token: int, /) -> TokenText:
        text = list(self.known)[token]
        return TokenText(text, text.encode())


def test_the_place_is_the_character_inside_a_token() -> None:
    fours = Fours()
    texts = [f"It is {time}: {RULES}" for time in ("19:02", "20:02")]
    stored, tokens = (fours.encode(text) for text in texts)
    branch = Branch(1, pack(stored[1:]))  # after the token "It i"
    finding = found(judge(fours, tokens, PromptSource(texts[1]), branch, DEFAULT))
    assert (finding.kind, finding.position) == ("clock", 1)
    assert (finding.first, finding.last) == (6, 11)
    assert (finding.here, finding.stored) == ("20:02", "19:02")
