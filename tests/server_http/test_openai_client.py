"""OpenAI's own client against the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import openai
import pytest

from tests.server_http.running import Running
from tests.server_http.scripted import REPLY

TEXT = "".join(REPLY)


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def test_a_whole_chat_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="scripted-1", messages=[{"role": "user", "content": "hello"}]
    )
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    assert answer._request_id == answer.id


def test_a_streamed_chat_answer(client: openai.OpenAI) -> None:
    prompt = "long enough to be cached in blocks"
    parts: list[str] = []
    for _ in range(2):
        stream = client.chat.completions.create(
            model="",
            messages=[{"role": "user", "content": prompt}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        parts = [each.choices[0].delta.content or "" for each in chunks if each.choices]
        assert chunks[0].choices[0].delta.role == "assistant"
        usage = chunks[-1].usage
    assert "".join(parts) == TEXT
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 32


def test_the_helper_that_gathers_a_chat_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="scripted-1", messages=[{"role": "user", "content": "gather"}]
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == TEXT


def test_a_whole_and_a_streamed_completion(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="scripted-1", prompt=["one", "two"])
    assert [choice.text for choice in whole.choices] == [TEXT, TEXT]
    stream = client.completions.create(model="scripted-1", prompt="three", stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == TEXT


def test_log_probabilities_of_a_chat(client: openai.OpenAI) -> None:
    for stream in (False, True):
        answer = client.chat.completions.create(
            model="scripted-1",
            messages=[{"role": "user", "content": "logprobs"}],
            logprobs=True,
            top_logprobs=3,
            stream=stream,
        )
        chunks = list(answer) if isinstance(answer, openai.Stream) else [answer]
        entries = [
            entry
            for chunk in chunks
            if chunk.choices[0].logprobs is not None
            for entry in chunk.choices[0].logprobs.content or []
        ]
        assert [entry.token for entry in entries] == ["H", ",", "w", "!"]
        assert {entry.logprob for entry in entries} == {-0.5}
        for entry in entries:
            assert entry.bytes == list(entry.token.encode())
            assert [(top.token, top.logprob, top.bytes) for top in entry.top_logprobs] == [
                ("A", -0.25, [65]),
                ("B", -0.5, [66]),
                ("bytes:\\xc3", -2.0, [195]),
            ]


def test_log_probabilities_and_the_echo_of_a_completion(client: openai.OpenAI) -> None:
    for stream in (False, True):
        answer = client.completions.create(
            model="scripted-1", prompt="hey", logprobs=2, echo=True, stream=stream
        )
        chunks = list(answer) if isinstance(answer, openai.Stream) else [answer]
        choices = [chunk.choices[0] for chunk in chunks]
        assert "".join(choice.text for choice in choices) == "hey" + TEXT
        lists = [choice.logprobs for choice in choices if choice.logprobs is not None]
        tokens = [token for each in lists for token in each.tokens or []]
        assert tokens == ["h", "e", "y", "H", ",", "w", "!"]
        values = [value for each in lists for value in each.token_logprobs or []]
        assert values == [None, *[-0.5] * 6]
        tops = [top for each in lists for top in each.top_logprobs or []]
        assert tops[1] == {"A": -0.25, "B": -0.5, "e": -0.5}
        offsets = [offset for each in lists for offset in each.text_offset or []]
        assert offsets == [0, 1, 2, 3, 4, 5, 6]


def test_a_prompt_alone_comes_back(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="scripted-1", prompt=["one", "two"], logprobs=0, echo=True, max_tokens=0
    )
    assert [choice.text for choice in answer.choices] == ["one", "two"]
    assert answer.usage is not None
    assert (answer.usage.completion_tokens, answer.usage.prompt_tokens) == (0, 6)


def test_errors_become_the_clients_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="scripted-1", prompt="x" * 300)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "prompt")
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="x")
    with pytest.raises(openai.APIError, match="the script says so"):
        list(client.completions.create(model="scripted-1", prompt="will fail", stream=True))


def test_every_form_of_a_prompt(client: openai.OpenAI) -> None:
    forms: list[tuple[Any, int]] = [
        ("hey", 1),
        (["one", "two"], 2),
        ([104, 101, 121], 1),
        ([[104], [101, 121]], 2),
    ]
    for prompt, choices in forms:
        answer = client.completions.create(model="scripted-1", prompt=prompt, n=2)
        assert [choice.index for choice in answer.choices] == list(range(2 * choices))
        assert {choice.text for choice in answer.choices[::2]} == {TEXT}


def test_what_old_completions_had_is_taken_where_it_asks_for_nothing(
    client: openai.OpenAI,
) -> None:
    for fields in ({"suffix": ""}, {"best_of": 1}, {"best_of": 2, "n": 2}, {"user": "me"}):
        raw = client.completions.with_raw_response.create(
            model="scripted-1", prompt="hey", **cast(Any, fields)
        )
        assert "suffix" not in raw.headers.get("x-ignored-fields", "")
        assert len(raw.parse().choices) == fields.get("n", 1)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"n": 0}, "n"),
        ({"n": 10**12}, "n"),
        ({"prompt": [[104], "a"]}, "prompt"),
        ({"prompt": []}, "prompt"),
    ],
)
def test_what_is_not_there_is_refused_by_its_name(
    client: openai.OpenAI, fields: dict[str, Any], param: str
) -> None:
    body: dict[str, Any] = {"model": "scripted-1", "prompt": "hey", **fields}
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(**body)
    assert refused.value.param == param
    assert param in refused.value.message


def test_the_model_list(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["scripted-1"]
    assert client.models.retrieve("scripted-1").id == "scripted-1"
