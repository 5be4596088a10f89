"""Bodies that are refused: by name, at once, and the server goes on."""

from __future__ import annotations

from typing import Any

import pytest

from server.http.schemas import ErrorBody
from tests.server_http.running import Running

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
USER = {"role": "user", "content": "hi"}
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}


def text(**fields: Any) -> tuple[str, Any]:
    return COMPLETIONS, {"prompt": "bad", **fields}


def chat(**fields: Any) -> tuple[str, Any]:
    return CHAT, {"messages": [USER], **fields}


def says(answer: Any, *words: str) -> bool:
    return all(word in answer["message"] for word in words)


# (path and body, the field that the error names, words that its message must have)
BAD: list[tuple[tuple[str, Any], str | None, tuple[str, ...]]] = [
    ((COMPLETIONS, b""), None, ("JSON",)),
    ((COMPLETIONS, b'{"prompt": "x",'), None, ("JSON",)),
    ((COMPLETIONS, b'{"prompt": "x", "temperature": NaN}'), None, ("JSON", "NaN")),
    ((COMPLETIONS, b'{"prompt": "x", "temperature": -Infinity}'), None, ("JSON",)),
    ((COMPLETIONS, b'{"prompt": "x", "temperature": 1e999}'), "temperature", ("2",)),
    ((COMPLETIONS, b'{"prompt": "\\ud800"}'), None, ("JSON",)),
    ((COMPLETIONS, b'{"prompt": "\xff"}'), None, ("UTF-8",)),
    ((COMPLETIONS, b'{"a":' + b"[" * 5000), None, ("JSON",)),
    ((COMPLETIONS, b"[1, 2]"), None, ("object", "array")),
    ((COMPLETIONS, b"null"), None, ("object", "null")),
    ((COMPLETIONS, {}), "prompt", ("required",)),
    (text(prompt=None), "prompt", ("a string",)),
    (text(prompt=""), "prompt", ("empty",)),
    (text(prompt=[]), "prompt", ("empty",)),
    (text(prompt=[""]), "prompt", ("prompt[0]", "empty")),
    (text(prompt=[[]]), "prompt", ("prompt[0]", "empty")),
    (text(prompt=["a", [1]]), "prompt", ("prompt[1]",)),
    (text(prompt=[1, "a"]), "prompt", ("prompt[1]", "token id")),
    (text(prompt=[[1, 2.5]]), "prompt", ("prompt[0][1]", "token id")),
    (text(prompt=[True]), "prompt", ("prompt[0]",)),
    (text(prompt={"text": "a"}), "prompt", ("type",)),
    (text(prompt=["a"] * 1025), "prompt", ("1024", "further requests")),
    (text(prompt=[-1]), "prompt", ("255",)),
    (text(prompt=[10**9]), "prompt", ("255",)),
    (text(prompt=["fine", "x" * 300]), "prompt", ("prompt[1]", "300", "255")),
    (text(temperature=-1), "temperature", ("from 0",)),
    (text(temperature=2.1), "temperature", ("2.1", "to 2")),
    (text(temperature="1"), "temperature", ("'1'",)),
    (text(temperature=True), "temperature", ("True",)),
    (text(top_p=0), "top_p", ("above 0",)),
    (text(top_p=2), "top_p", ("up to 1",)),
    (text(top_k=-2), "top_k", ("-1",)),
    (text(top_k=1.5), "top_k", ("whole number",)),
    (text(max_tokens=-1), "max_tokens", ("from 1",)),
    (text(max_tokens=0), "max_tokens", ("from 1", "echo: true")),
    (text(max_tokens=0, echo=False), "max_tokens", ("from 1",)),
    (text(max_tokens=10**12), "max_tokens", ("2147483647",)),
    (text(max_tokens=1e12), "max_tokens", ("2147483647",)),
    (text(max_tokens="16"), "max_tokens", ("'16'",)),
    (text(seed=2**63), "seed", ("64 bits",)),
    (text(seed="7"), "seed", ("'7'",)),
    (text(stop=["x"] * 1000), "stop", ("1000", "16")),
    (text(stop=""), "stop", ("0 characters", "1 to 1000")),
    (text(stop=["a", "x" * 1001]), "stop", ("stop[1]", "1001", "1000")),
    (text(stop=[1]), "stop", ("stop[0]",)),
    (text(stop={"a": 1}), "stop", ("string",)),
    (text(stream="yes"), "stream", ("'yes'",)),
    (text(stream_options=True), "stream_options", ("include_usage",)),
    (text(stream_options={"include_usage": 1}), "stream_options.include_usage", ("1",)),
    (text(n=0), "n", ("from 1", "128")),
    (text(n=129), "n", ("from 1", "128")),
    (text(n=1.0), "n", ("whole number",)),
    (text(prompt=["a"] * 600, n=2), "n", ("600 prompts", "1024")),
    (chat(n=129), "n", ("128",)),
    (text(model=5), "model", ("5",)),
    (text(n=10**12), "n", ("128",)),
    (text(logprobs=1_000_000), "logprobs", ("0 to 5",)),
    (text(logprobs=6), "logprobs", ("0 to 5", "6")),
    (text(logprobs=-1), "logprobs", ("0 to 5",)),
    (text(logprobs=True), "logprobs", ("0 to 5", "True")),
    (text(logprobs=1.5), "logprobs", ("whole number",)),
    (text(top_logprobs=2), "top_logprobs", ("not supported here", "/v1/chat/completions")),
    (text(echo=1), "echo", ("true",)),
    (text(echo=True, max_tokens=-1), "max_tokens", ("from 1", "0 with echo")),
    (text(suffix="end"), "suffix", ("not supported",)),
    (text(best_of=3), "best_of", ("use_beam_search",)),
    (text(best_of=1, n=2), "best_of", ("use_beam_search", "2")),
    (text(use_beam_search=True, best_of=2, n=3), "best_of", ("2", "3")),
    (text(use_beam_search=True, best_of=129), "best_of", ("128",)),
    (text(use_beam_search=True, stream=True), "stream", ("use_beam_search",)),
    (text(use_beam_search=True, ignore_eos=True), "ignore_eos", ("use_beam_search",)),
    (text(ignore_eos=1), "ignore_eos", ("true",)),
    (text(use_beam_search=True, stop="x"), "stop", ("use_beam_search",)),
    (text(use_beam_search=True, temperature=0.5), "temperature", ("use_beam_search",)),
    (text(use_beam_search=True, top_p=0.5), "top_p", ("use_beam_search",)),
    (text(use_beam_search=True, top_k=5), "top_k", ("use_beam_search",)),
    (text(use_beam_search=True, min_p=0.1), "min_p", ("use_beam_search",)),
    (text(use_beam_search=True, logprobs=0), "logprobs", ("use_beam_search", "own prob")),
    (text(use_beam_search=True, logit_bias={"1": 1}), "logit_bias", ("use_beam_search",)),
    (text(use_beam_search=True, repetition_penalty=2), "repetition_penalty", ("Leave",)),
    (text(use_beam_search=True, presence_penalty=1), "presence_penalty", ("Leave",)),
    (text(use_beam_search=True, frequency_penalty=1), "frequency_penalty", ("Leave",)),
    (
        text(use_beam_search=True, echo=True, max_tokens=0),
        "max_tokens",
        ("use_beam_search", "from 1"),
    ),
    (text(use_beam_search=1), "use_beam_search", ("1",)),
    (text(use_beam_search=True, length_penalty=11), "length_penalty", ("-10 to 10",)),
    (text(use_beam_search=True, early_stopping="soon"), "early_stopping", ("never",)),
    (chat(use_beam_search=True), "use_beam_search", ("not supported",)),
    (chat(length_penalty=2), "length_penalty", ("not supported",)),
    (text(logit_bias={"five": 1}), "logit_bias", ("'five'", "token id")),
    (text(logit_bias={"-5": 1}), "logit_bias", ("'-5'", "token id")),
    (text(logit_bias={"5": 101}), "logit_bias", ("['5']", "-100 to 100", "101")),
    (text(logit_bias={"5": "1"}), "logit_bias", ("['5']", "a number")),
    (text(logit_bias={"5": True}), "logit_bias", ("['5']", "True")),
    (text(logit_bias=[5]), "logit_bias", ("object",)),
    (text(presence_penalty=2.1), "presence_penalty", ("-2 to 2", "2.1")),
    (chat(presence_penalty=-2.1), "presence_penalty", ("-2 to 2",)),
    (text(frequency_penalty="x"), "frequency_penalty", ("-2 to 2", "'x'")),
    (chat(frequency_penalty=3), "frequency_penalty", ("-2 to 2",)),
    (text(repetition_penalty=0), "repetition_penalty", ("0.01 to 100",)),
    (text(repetition_penalty=101), "repetition_penalty", ("0.01 to 100", "101")),
    (text(min_p=-0.1), "min_p", ("from 0", "to 1")),
    (chat(min_p=1.1), "min_p", ("to 1", "1.1")),
    ((CHAT, {}), "messages", ("required",)),
    ((CHAT, {"messages": []}), "messages", ("at least 1 item, not 0. Expected",)),
    ((CHAT, {"messages": "hi"}), "messages", ("list",)),
    ((CHAT, {"messages": [5]}), "messages[0]", ()),
    ((CHAT, {"messages": [USER, {"role": "robot", "content": "x"}]}), "messages[1].role", ()),
    ((CHAT, {"messages": [{"content": "x"}]}), "messages[0].role", ("required",)),
    ((CHAT, {"messages": [{"role": "user"}]}), "messages[0]", ("messages[0]: content",)),
    (
        (CHAT, {"messages": [{"role": "assistant", "content": None}]}),
        "messages[0]",
        ("tool_calls",),
    ),
    ((CHAT, {"messages": [{"role": "user", "content": 5}]}), "messages[0].content", ("string",)),
    ((CHAT, {"messages": [IMAGE]}), "messages[0].content", (".content: content[0]", "image_url")),
    ((CHAT, {"messages": [{"role": "user", "content": "x" * 300}]}), "messages", ("300", "255")),
    (chat(max_tokens=3, max_completion_tokens=4), "max_completion_tokens", ("3", "4", "one")),
    (chat(max_completion_tokens=0), "max_completion_tokens", ("max_tokens",)),
    (chat(tools="x"), "tools", ("list",)),
    (chat(tools=[{"type": "function"}]), "tools[0].function", ("required",)),
    (chat(tools=[{"type": "search"}]), "tools[0].type", ("function",)),
    (chat(tool_choice="required"), "tool_choice", ("auto",)),
    (chat(logprobs=5), "logprobs", ("true",)),
    (chat(logprobs=True, top_logprobs=21), "top_logprobs", ("0 to 20", "21")),
    (chat(logprobs=True, top_logprobs=-1), "top_logprobs", ("0 to 20",)),
    (chat(top_logprobs=2), "top_logprobs", ("logprobs: true",)),
    (chat(logprobs=False, top_logprobs=2), "top_logprobs", ("logprobs: true",)),
    (chat(echo=True), "echo", ("not supported here", "/v1/completions")),
    (chat(max_tokens=0), "max_tokens", ("from 1",)),
    (chat(modalities=["text", "audio"]), "modalities", ("not supported",)),
    (chat(functions=[{"name": "f"}]), "functions", ("not supported",)),
]


def assert_still_serving(server: Running) -> None:
    assert server.post(COMPLETIONS, {"prompt": "good"}).status_code == 200


@pytest.mark.parametrize(("request_", "param", "words"), BAD)
def test_an_invalid_body_is_refused_by_name_and_the_next_request_is_answered(
    server: Running, request_: tuple[str, Any], param: str | None, words: tuple[str, ...]
) -> None:
    response = server.post(*request_)
    error = ErrorBody.model_validate_json(response.content, strict=True).error
    assert response.status_code == 400
    assert error.type == "invalid_request_error"
    assert error.param == param
    assert error.code
    missing = [word for word in words if word not in error.message]
    assert not missing, error.message
    assert len(error.message) < 600
    assert_still_serving(server)


@pytest.mark.parametrize(
    ("message", "is_told"),
    [({"role": "usr", "content": "x"}, False), ({"role": "user"}, False), (5, True)],
)
def test_what_a_list_is_does_not_bury_what_is_wrong_inside_its_items(
    server: Running, message: Any, is_told: bool
) -> None:
    error = server.post(CHAT, {"messages": [message]}).json()["error"]
    assert ("The conversation so far" in error["message"]) == is_told


@pytest.mark.parametrize(
    "neutral",
    [
        {"logprobs": None, "echo": False, "suffix": "", "best_of": 1, "n": 1, "logit_bias": {}},
        {"presence_penalty": 0, "frequency_penalty": 0.0, "stop": None, "seed": None},
        {"min_p": 0, "repetition_penalty": 1, "logprobs": False, "logit_bias": None},
        {"top_logprobs": 0, "presence_penalty": None, "repetition_penalty": None},
        {"max_tokens": None, "temperature": None, "top_p": None, "stream": None, "user": None},
        {"stop": [], "stream_options": None, "metadata": None, "n": None},
    ],
)
def test_values_that_ask_for_nothing_are_accepted(server: Running, neutral: dict[str, Any]) -> None:
    response = server.post(*text(**neutral))
    assert response.status_code == 200
    assert "x-ignored-fields" not in response.headers


def test_neutral_values_in_a_chat_are_accepted(server: Running) -> None:
    neutral = {
        "logprobs": False,
        "top_logprobs": 0,
        "response_format": {"type": "text"},
        "tool_choice": "auto",
        "tools": None,
        "modalities": ["text"],
    }
    assert server.post(*chat(**neutral)).status_code == 200


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_another_models_name_is_a_404_that_names_the_served_one(server: Running, path: str) -> None:
    body = {"prompt": "x", "messages": [USER], "model": "gpt-9"}
    response = server.post(path, body)
    error = response.json()["error"]
    assert response.status_code == 404
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert says(error, "scripted-1", "gpt-9")
    assert_still_serving(server)


def test_a_prompt_that_does_not_fit_keeps_the_engines_code(server: Running) -> None:
    error = server.post(COMPLETIONS, {"prompt": "x" * 300}).json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")


def test_one_refused_prompt_ends_the_others_of_its_request(server: Running) -> None:
    response = server.post(COMPLETIONS, {"prompt": ["others queue", "x" * 300]})
    assert response.status_code == 400
    (request_id,) = server.engine.record.ids_of("others queue")
    server.engine.record.wait_until(lambda: request_id in server.engine.record.aborted)


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_over_the_limit_is_a_413(server: Running, announced: bool) -> None:
    def pieces() -> Any:
        for _ in range(17):
            yield b" " * 1024 * 1024

    content = b" " * (16 * 1024 * 1024 + 1) if announced else pieces()
    response = server.client.post(COMPLETIONS, content=content)
    error = response.json()["error"]
    assert response.status_code == 413
    assert says(error, str(16 * 1024 * 1024))
    assert error["code"] == "body_too_large"
    assert_still_serving(server)


def test_a_body_just_under_the_limit_is_read(server: Running) -> None:
    content = b'{"prompt": "padded"}'.ljust(16 * 1024 * 1024)
    assert server.client.post(COMPLETIONS, content=content).status_code == 200


def test_an_unexpected_exception_is_a_500_for_that_request_alone(server: Running) -> None:
    response = server.post(COMPLETIONS, {"prompt": "please crash"})
    error = response.json()["error"]
    assert response.status_code == 500
    assert error["type"] == "server_error"
    assert "ZeroDivisionError" not in error["message"]
    assert_still_serving(server)
