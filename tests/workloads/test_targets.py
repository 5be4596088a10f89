from __future__ import annotations

import pytest

from workloads.agents.targets import Target, in_turn, parse_target, repeated_name, with_access


@pytest.mark.parametrize(
    ("text", "name", "url"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("vllm=http://127.0.0.1:8000/", "vllm", "http://127.0.0.1:8000"),
        ("https://host.example/base/v1", "host.example", "https://host.example/base"),
        ("http://[::1]:9/v1/", "::1:9", "http://[::1]:9"),
    ],
)
def test_a_target_is_a_url_with_or_without_a_name(text: str, name: str, url: str) -> None:
    assert parse_target(text) == Target(name, url)


@pytest.mark.parametrize(
    "text", ["", "vllm=", "ftp://h", "http://", "http://h:port", "a/b=http://h", "http://h?x=1"]
)
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a|no query"):
        parse_target(text)


def test_keys_come_from_variables_for_one_target_or_for_all_and_are_never_shown() -> None:
    targets = [Target("a", "http://a"), Target("b", "http://b")]
    environment = {"FIRST": "one", "SECOND": "two"}
    given = with_access(targets, "m", ["FIRST", "b=SECOND"], environment)
    assert [(each.key, each.model) for each in given] == [("one", "m"), ("two", "m")]
    assert "one" not in repr(given)
    assert [each.key for each in with_access(targets, None, ["a=FIRST"], environment)] == [
        "one",
        None,
    ]


def test_a_variable_that_is_not_set_and_a_name_that_nobody_has_are_named() -> None:
    with pytest.raises(ValueError, match="'EMPTY' is not set or empty"):
        with_access([Target("a", "http://a")], None, ["EMPTY"], {"EMPTY": ""})
    with pytest.raises(ValueError, match="names no target; there are a"):
        with_access([Target("a", "http://a")], None, ["c=KEY"], {"KEY": "x"})


def test_each_round_begins_with_another_target() -> None:
    targets = [Target(name) for name in "abc"]
    names = ["".join(each.name for each in in_turn(targets, number)) for number in range(4)]
    assert names == ["abc", "bca", "cab", "abc"]


def test_a_repeated_name_is_found() -> None:
    assert repeated_name([Target("a"), Target("b"), Target("a")]) == "a"
    assert repeated_name([Target("a"), Target("b")]) is None
