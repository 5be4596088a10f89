"""The fields that tell what an answer has to be and where it may end: as the engine gets them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from server.constraint import Constraint, one_of
from server.generation_params import GenerationParams
from tests.server_http.running import Running, events

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PATHS = pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
SCHEMA = {"type": "object", "properties": {"b": {"type": "null"}, "a": {"type": "integer"}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}


def body(path: str, fields: dict[str, Any]) -> dict[str, Any]:
    prompt: dict[str, Any] = {"prompt": "hi"}
    if path == CHAT:
        prompt = {"messages": [{"role": "user", "content": "hi"}]}
    return {**prompt, "max_tokens": 20, **fields}


def params(server: Running, path: str, **fields: Any) -> GenerationParams:
    """What the engine was asked for; all fields must have been known."""
    response = server.post(path, body(path, fields))
    assert response.status_code == 200, response.text
    assert "x-ignored-fields" not in response.headers
    return list(server.engine.record.submitted.values())[-1][1]


def refusal(server: Running, path: str, **fields: Any) -> Any:
    response = server.post(path, body(path, fields))
    assert response.status_code == 400, response.text
    return response.json()["error"]


def of_schema(schema: object, param: str) -> Constraint:
    return Constraint("json_schema", json.dumps(schema), param)


CONSTRAINTS: list[tuple[dict[str, Any], Constraint | None]] = [
    ({"response_format": None, "guided_json": None, "structured_outputs": None}, None),
    ({"response_format": {"type": "text"}, "structured_outputs": {}}, None),
    ({"structured_outputs": {"json_object": False, "regex": None}}, None),
    (
        {"response_format": {"type": "json_object"}},
        of_schema({"type": "object"}, "response_format"),
    ),
    ({"response_format": FORMAT}, of_schema(SCHEMA, "response_format")),
    ({"structured_outputs": {"json": SCHEMA}}, of_schema(SCHEMA, "structured_outputs.json")),
    (
        {"structured_outputs": {"json": json.dumps(SCHEMA)}},
        of_schema(SCHEMA, "structured_outputs.json"),
    ),
    (
        {"structured_outputs": {"json_object": True}},
        of_schema({"type": "object"}, "structured_outputs.json_object"),
    ),
    (
        {"structured_outputs": {"regex": "a+"}},
        Constraint("regex", "a+", "structured_outputs.regex"),
    ),
    (
        {"structured_outputs": {"choice": ["a", "b"]}},
        one_of(["a", "b"], "structured_outputs.choice"),
    ),
    (
        {"structured_outputs": {"grammar": 'start: "a"'}},
        Constraint("lark", 'start: "a"', "structured_outputs.grammar"),
    ),
    ({"guided_json": SCHEMA}, of_schema(SCHEMA, "guided_json")),
    ({"guided_json": True}, of_schema(True, "guided_json")),
    ({"guided_regex": "a+"}, Constraint("regex", "a+", "guided_regex")),
    ({"guided_choice": ["a"]}, one_of(["a"], "guided_choice")),
    ({"guided_grammar": "root ::= x"}, Constraint("lark", "root ::= x", "guided_grammar")),
]


@PATHS
@pytest.mark.parametrize(("fields", "expected"), CONSTRAINTS)
def test_each_way_to_ask_for_a_form_reaches_the_engine(
    server: Running, path: str, fields: dict[str, Any], expected: Constraint | None
) -> None:
    found = params(server, path, **fields).constraint
    assert (found and found.param) == (expected and expected.param)
    if found is not None and path == CHAT:
        assert "</think>" in found.before, "the scripted model may reason first"
        found = replace(found, before="")
    assert found == expected


def test_a_schema_keeps_the_order_of_its_keys(server: Running) -> None:
    """It is the order in which the answer has them."""
    found = params(server, CHAT, response_format=FORMAT).constraint
    assert found is not None
    assert list(json.loads(found.source)["properties"]) == ["b", "a"]


def test_strict_false_passes_over_what_cannot_be_kept_to(server: Running) -> None:
    for own in ({}, {"x-guidance": {"whitespace_flexible": False}}):
        asked = {"schema": {**SCHEMA, **own}, "strict": False}
        form = {"type": "json_schema", "json_schema": asked}
        found = params(server, CHAT, response_format=form).constraint
        assert found is not None
        expected = {"lenient": True, **own.get("x-guidance", {})}
        assert json.loads(found.source) == {**SCHEMA, "x-guidance": expected}
    for strict in (True, None):
        form = {"type": "json_schema", "json_schema": {"schema": SCHEMA, "strict": strict}}
        found = params(server, COMPLETIONS, response_format=form).constraint
        assert found == of_schema(SCHEMA, "response_format")


@PATHS
def test_the_fields_of_an_end_reach_the_engine(server: Running, path: str) -> None:
    found = params(
        server, path, min_tokens=3, stop_token_ids=[7, 5], include_stop_str_in_output=True
    )
    assert (found.min_tokens, found.stop_token_ids, found.include_stop) == (3, (7, 5), True)
    for nothing in ({}, {"min_tokens": 0, "stop_token_ids": []}, {"stop_token_ids": None}):
        found = params(server, path, **nothing)
        assert (found.min_tokens, found.stop_token_ids, found.include_stop) == (0, (), False)


def test_min_tokens_are_at_most_what_the_answer_may_have(server: Running) -> None:
    assert params(server, COMPLETIONS, min_tokens=20).min_tokens == 20
    error = refusal(server, COMPLETIONS, min_tokens=21)
    assert error["param"] == "min_tokens"
    assert "min_tokens is 21, but max_tokens is 20" in error["message"]
    error = refusal(server, COMPLETIONS, min_tokens=17, max_tokens=None)
    assert "max_tokens is 16" in error["message"]
    assert params(server, CHAT, min_tokens=200, max_tokens=None).min_tokens == 200


BAD: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    ({"response_format": "json"}, "response_format", ("{type: json_object}",)),
    ({"response_format": {}}, "response_format.type", ("required",)),
    (
        {"response_format": {"type": "structural_tag", "structures": []}},
        "response_format.type",
        ("'json_object'", "'structural_tag'"),
    ),
    (
        {"response_format": {"type": "json_schema"}},
        "response_format.json_schema",
        ("required", "schema"),
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "response_format.json_schema.schema",
        ("required",),
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": "{}"}}},
        "response_format.json_schema.schema",
        ("an object",),
    ),
    ({"guided_json": 5}, "guided_json", ("an object",)),
    ({"structured_outputs": {"json": []}}, "structured_outputs.json", ("an object",)),
    ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex", ("string",)),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", ("texts",)),
    ({"guided_choice": ["a", ""]}, "guided_choice", ("none may be empty",)),
    ({"guided_choice": ["a", 1]}, "guided_choice[1]", ("string",)),
    (
        {"structured_outputs": {"structural_tag": "{}"}},
        "structured_outputs.structural_tag",
        ("not supported", "grammar"),
    ),
    (
        {"structured_outputs": {"json": {}, "disable_any_whitespace": True}},
        "structured_outputs.disable_any_whitespace",
        ("x-guidance",),
    ),
    (
        {"structured_outputs": {"regex": "a", "choice": ["a"]}},
        "structured_outputs.choice",
        ("structured_outputs.regex", "only one"),
    ),
    (
        {"response_format": {"type": "json_object"}, "guided_regex": "a"},
        "guided_regex",
        ("response_format", "only one"),
    ),
    ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos", ("guided_regex", "min_tokens")),
    ({"min_tokens": -1}, "min_tokens", ("at least 0", "greater")),
    ({"min_tokens": 1.5}, "min_tokens", ("whole number",)),
    ({"stop_token_ids": 5}, "stop_token_ids", ("list",)),
    ({"stop_token_ids": [1, -1]}, "stop_token_ids", ("below 0",)),
    ({"stop_token_ids": [True]}, "stop_token_ids[0]", ()),
    ({"stop_token_ids": list(range(129))}, "stop_token_ids", ("128",)),
    ({"include_stop_str_in_output": 1}, "include_stop_str_in_output", ("true",)),
]


@PATHS
@pytest.mark.parametrize(("fields", "param", "words"), BAD)
def test_what_is_wrong_is_refused_by_name(
    server: Running, path: str, fields: dict[str, Any], param: str, words: tuple[str, ...]
) -> None:
    error = refusal(server, path, **fields)
    assert error["param"] == param
    if words and words[0] != "at least 0":
        assert not [word for word in words if word not in error["message"]], error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"guided_regex": "a"}, "guided_regex"),
        ({"min_tokens": 2}, "min_tokens"),
        ({"stop_token_ids": [2]}, "stop_token_ids"),
    ],
)
def test_beam_search_takes_none_of_them(
    server: Running, fields: dict[str, Any], param: str
) -> None:
    error = refusal(server, COMPLETIONS, use_beam_search=True, **fields)
    assert error["param"] == param
    assert "use_beam_search" in error["message"]


def test_what_is_only_a_hint_is_named(server: Running) -> None:
    fields = {
        "structured_outputs": {"regex": "a", "disable_fallback": True, "structural_tag": None},
        "response_format": {"type": "text", "note": 1},
        "guided_decoding_backend": "xgrammar",
    }
    response = server.post(COMPLETIONS, {"prompt": "hi", **fields})
    assert response.status_code == 200
    assert set(response.headers["x-ignored-fields"].split(", ")) == {
        "guided_decoding_backend",
        "response_format.note",
        "structured_outputs.disable_fallback",
    }


@PATHS
def test_every_choice_has_a_stop_reason(server: Running, path: str) -> None:
    """Here none, since it was not asked for any."""
    (choice,) = server.post(path, body(path, {})).json()["choices"]
    assert choice["stop_reason"] is None
    with server.client.stream("POST", path, json=body(path, {"stream": True})) as response:
        choices = [each for chunk in events(response) for each in chunk["choices"]]
    assert choices[-1]["finish_reason"] == "stop"
    assert all(choice["stop_reason"] is None for choice in choices)
