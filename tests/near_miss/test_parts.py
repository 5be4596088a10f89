"""The parts that finding near-misses is made of."""

from __future__ import annotations

import pytest

from radix_engine.cache import pack
from server.near_miss import Finding, Register, Thresholds, how_to_mend
from server.near_miss.alike import Alike, alike_after
from server.near_miss.finding import KINDS, Section
from server.near_miss.kinds import json_span, volatile_span
from server.near_miss.sections import section_at
from server.near_miss.source import PromptSource
from tests.near_miss.replaying import BEGIN, assistant, call, rendered, system, user

TOKENS = list(range(1000, 1400))


@pytest.mark.parametrize(
    ("run", "stored", "expected"),
    [
        ([1, 2, *TOKENS], [3, 4, 5, *TOKENS], Alike(2, 3, 400)),
        ([*TOKENS], [9, *TOKENS], Alike(0, 1, 400)),
        ([1, 2, *TOKENS[:90], 8], [3, *TOKENS], Alike(2, 1, 90)),
        ([*range(120), *TOKENS], [7, *TOKENS], Alike(120, 1, 400)),
        ([1, *TOKENS[:15], 2], [3, *TOKENS[:15], 4], None),
        ([1, 2, 3], [4, 5, 6], None),
        ([], [1], None),
    ],
)
def test_a_stretch_is_found_where_both_go_on_alike(
    run: list[int], stored: list[int], expected: Alike | None
) -> None:
    assert alike_after(pack(run), pack(stored)) == expected


def test_a_stretch_begins_at_whole_tokens_and_after_the_start() -> None:
    # The bytes of 256-fold ids are those of others, moved by one byte.
    assert alike_after(pack([each << 8 for each in range(40)]), pack(range(1, 60))) is None
    assert alike_after(pack([*TOKENS[:50], 1, *TOKENS[50:]]), pack(TOKENS), 51) == Alike(
        51, 50, 350
    )


def test_a_pattern_counts_only_where_it_is_what_differs() -> None:
    text = "at 19:02 we met Anna"
    assert volatile_span(text, "at 19:02 we met Bob", 16) is None
    span = volatile_span(text, "at 19:05 we met Anna", 7)
    assert span is not None
    assert (span.kind, span.start, span.end) == ("clock", 3, 8)
    assert volatile_span("v19:02", "w19:02", 0) is None
    assert volatile_span("at 19:02,a", "at 19:02;b", 8) is None


def test_json_counts_only_where_it_says_the_same() -> None:
    assert json_span('x {"a": 1, "b": 2}', 'x {"b": 2, "a": 1}', 4) is not None
    assert json_span('x {"a": 1, "b": 2}', 'x {"b": 3, "a": 1}', 4) is None
    assert json_span('x {"a": 1}', 'x {"a": 1, "b": 2}', 9) is None
    assert json_span('{"a": 1} tail', '{"a": 1} other', 9) is None
    assert json_span("[" * 3000, "[" * 2999 + "]", 2999) is None


def test_sections_are_found_in_the_rendering() -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    messages = [
        system("Be kind."),
        user("Look"),
        assistant("", tool_calls=[call("{}")]),
        {"role": "tool", "content": "sunny"},
        user("Thanks"),
    ]
    text = "Head. " + rendered(messages, tools)
    source = PromptSource(text, messages, tools)

    def at(piece: str) -> tuple[str, int | None, str | None]:
        section = section_at(source, text, text.index(piece))
        return section.kind, section.message, section.role

    assert at("Head.") == ("template", None, None)
    assert at("kind.") == ("system", 0, "system")
    assert at('"look"') == ("tools", None, None)
    assert at("Look\x02") == ("message", 1, "user")
    assert at("<call>") == ("message", 2, "assistant")
    assert at("unny") == ("message", 3, "tool")
    assert at("Thanks") == ("message", 4, "user")
    assert section_at(source, text, len(text) - 1).message == 5  # the answer's own head
    # What is between two texts belongs to the later one.
    assert section_at(source, text, text.index(f"{BEGIN}user\nThanks")).message in (3, 4)


def finding(kind: str = "clock", shape: bytes = b"one", lost: int = 100) -> Finding:
    section = Section("system", 0, 900, 0, "system")
    return Finding(kind, section, 3, 9, 30, lost, 1000, "a", "b", shape)  # type: ignore[arg-type]


def test_a_shape_is_told_once_when_it_has_repeated() -> None:
    register = Register()
    told = [register.add(finding(), "acme", False, number, 1.0 * number) for number in range(1, 6)]
    assert [each is not None for each in told] == [False, False, True, False, False]
    (group,) = register.told()
    assert (group.times, group.lost_tokens, group.lost_each) == (5, 500, 100)
    assert (group.first_s, group.last_s, group.tenant) == (1.0, 5.0, "acme")
    assert register.by_kind == {"clock": 5}
    assert register.tokens_by_kind == {"clock": 500}


def test_what_is_less_sure_has_to_repeat_more_often() -> None:
    register = Register()
    told = [register.add(finding("other"), None, False, number, 0.0) for number in range(6)]
    assert [each is not None for each in told] == [False] * 4 + [True, False]


def test_what_comes_seldom_among_a_tenants_requests_is_not_told() -> None:
    register = Register(Thresholds(sure=3, within=16))
    assert all(
        register.add(finding(), None, False, number, 0.0) is None for number in range(0, 300, 25)
    )
    assert register.told() == []
    assert not register.by_kind
    register = Register(Thresholds(sure=3, within=16))
    assert any(register.add(finding(), None, False, number, 0.0) for number in range(0, 72, 24))


def test_no_more_shapes_are_kept_than_asked_for_and_the_costliest_comes_first() -> None:
    register = Register(Thresholds(sure=1), most=2)
    for shape, lost in ((b"one", 10), (b"two", 20), (b"three", 90)):
        register.add(finding(shape=shape, lost=lost), None, False, 1, 0.0)
    assert [group.lost_tokens for group in register.told()] == [90, 20]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_a_remedy(kind: str) -> None:
    assert len(how_to_mend(finding(kind))) > 20
