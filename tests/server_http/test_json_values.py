"""Bodies with millions of token ids: read like any JSON, and nothing else slips through."""

from __future__ import annotations

import json
from array import array
from functools import partial
from typing import Any

import pytest

from server.http.body import parse
from server.http.errors import ApiError
from server.http.json_values import MAX_VALUES, TooManyValues
from server.http.json_values import read_json as read
from server.http.openai.completions import CompletionRequest

read_json = partial(read, arrays=True)
IDS = [index * 7919 % 50_000 for index in range(60_000)]  # 340 kB


def as_lists(value: Any) -> Any:
    """Arrays as the lists that they stand for."""
    if isinstance(value, array):
        return value.tolist()
    if isinstance(value, list):
        return [as_lists(each) for each in value]
    if isinstance(value, dict):
        return {key: as_lists(each) for key, each in value.items()}
    return value


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n\t", " : ")])
@pytest.mark.parametrize("key", ["prompt", "tokens"])
@pytest.mark.parametrize("ids", [IDS, [IDS], [IDS, IDS[:1], IDS[5:]], [[1], IDS]])
def test_token_ids_come_as_arrays_of_the_same_numbers(
    ids: Any, key: str, separators: tuple[str, str]
) -> None:
    sent = {"model": "a", key: ids, "stop": ['"prompt": [1, 2', "]"], "n": 2}
    found = read_json(json.dumps(sent, separators=separators).encode())
    assert as_lists(found) == sent
    assert isinstance(found[key] if isinstance(ids[0], int) else found[key][0], array)


def test_a_short_body_has_lists_and_so_has_one_for_whom_arrays_are_nothing() -> None:
    assert read_json(b'{"prompt": [1, 2]}') == {"prompt": [1, 2]}
    for ids in (IDS, [IDS, [1]]):
        found = read(json.dumps({"prompt": ids}).encode(), arrays=False)
        assert found == {"prompt": ids}


@pytest.mark.parametrize(
    "body",
    [
        {"text": json.dumps({"prompt": IDS})},  # only looks like it
        {"user": "prompt", "prompt": IDS},
        {"metadata": {"prompt": IDS}},
        {"prompt": "a text", "metadata": {"tokens": IDS}},
        {"prompt": [*IDS, 2.5]},
        {"prompt": [*IDS, True]},
        {"prompt": [*IDS, None]},
        {"prompt": [*IDS, -1]},
        {"prompt": [*IDS, 2**40]},
        {"prompt": [*IDS, "a"]},
        {"prompt": [*IDS, [1]]},
        {"prompt": [IDS, []]},
        {"prompt": [IDS, 1]},
        {"prompt": [IDS, [[1]]]},
        {"prompt": [IDS, "a"]},
        [IDS],
    ],
    ids=lambda body: json.dumps(body)[:12] + "..." + json.dumps(body)[-12:],
)
def test_everything_else_is_what_it_is_in_json(body: Any) -> None:
    assert as_lists(read_json(json.dumps(body).encode())) == body


def test_of_two_values_of_a_field_the_last_one_counts_as_in_any_json() -> None:
    text = json.dumps({"prompt": IDS})
    assert read_json(f'{text[:-1]}, "prompt": "x"}}'.encode()) == {"prompt": "x"}
    assert as_lists(read_json(f'{{"prompt": "x", {text[1:]}'.encode())) == {"prompt": IDS}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[0,", "[,0,"),
        ("]", ",]"),
        ("]", ", ]"),
        ("]", "]]"),
        ("]", ""),
        (",7919,", ",,7919,"),
        (",7919,", ", 7919 1,"),
        (",7919,", ",07919,"),
        (",7919,", ",7919;"),
        ("}", ""),
        ("}", "}}"),
    ],
)
def test_what_is_no_json_is_none_however_long_it_is(old: str, new: str) -> None:
    few = IDS[: MAX_VALUES // 3]
    for ids in (few, [few, few]):
        text = json.dumps({"prompt": ids}, separators=(",", ":"))
        assert old in text
        with pytest.raises(ValueError, match="line 1 column"):
            read_json(text.replace(old, new, 1).encode())


def test_a_comma_too_many_is_seen_where_a_piece_ends_with_it() -> None:
    for end in (",", ", ", ",,"):
        with pytest.raises(ValueError, match="line 1 column"):
            read_json(b'{"prompt": [1%s%s]}' % (b" " * 40_000, end.encode()))


def test_pieces_end_wherever_the_numbers_do() -> None:
    """A comma, a blank or nothing at any place of a piece's end."""
    for width in range(1, 8):
        ids = [10**width - 1] * (90_000 // width)
        assert read_json(json.dumps({"prompt": ids}).encode())["prompt"].tolist() == ids


@pytest.mark.parametrize("nested", [False, True])
def test_a_body_with_too_many_other_values_is_refused(nested: bool) -> None:
    values: Any = [[0]] * MAX_VALUES if nested else ['",', "\\"] * (MAX_VALUES // 2)
    for body in ({"x": [*values, 1]}, {"x": [*values, 1], "prompt": IDS}):
        with pytest.raises(TooManyValues):
            read_json(json.dumps(body).encode())
    few = {"x": values[: MAX_VALUES // 2], "prompt": IDS}
    assert as_lists(read_json(json.dumps(few).encode())) == few


@pytest.mark.parametrize("text", ["a, b, ", '", "', "\\", '\\", \\\\", ', "\u732b, "])
def test_commas_in_a_text_are_no_values(text: str) -> None:
    body = {"prompt": text * (2 * MAX_VALUES), "stop": [","]}
    assert read_json(json.dumps(body).encode()) == body


def test_too_many_values_are_told_to_the_client() -> None:
    body = json.dumps({"prompt": "a", "x": [0] * (MAX_VALUES + 1)}).encode()
    with pytest.raises(ApiError) as refused:
        parse(body, CompletionRequest)
    assert (refused.value.status, refused.value.code) == (400, "too_many_values")
    assert "100000" in refused.value.message


@pytest.mark.parametrize("ids", [IDS, [IDS, IDS[:2]]])
def test_a_completion_takes_the_arrays(ids: Any) -> None:
    fields = parse(json.dumps({"prompt": ids}).encode(), CompletionRequest, arrays=True)
    expected = [ids] if isinstance(ids[0], int) else ids
    assert [list(prompt) for prompt in fields.prompt] == expected
    with pytest.raises(ApiError, match=r"prompt\[60000\] is not a token id"):
        parse(json.dumps({"prompt": [*IDS, "a"]}).encode(), CompletionRequest)
