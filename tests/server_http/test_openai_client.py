"""OpenAI's own client against the server."""

from __future__ import annotations

from collections.abc import Iterator

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


def test_errors_become_the_clients_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="scripted-1", prompt="x" * 300)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "prompt")
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="x")
    with pytest.raises(openai.APIError, match="the script says so"):
        list(client.completions.create(model="scripted-1", prompt="will fail", stream=True))


def test_the_model_list(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["scripted-1"]
    assert client.models.retrieve("scripted-1").id == "scripted-1"
