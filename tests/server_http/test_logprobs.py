"""Log-probabilities and echo over HTTP, from a real engine with a tiny model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from radix_engine.model.linear import TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.served import torch_model
from radix_engine.model.source import ModelFolder
from radix_engine.model.token_logprob import TokenLogprob
from server import Engine, GenerationParams, SamplingParams
from server.http import create_app
from server.http.chat_schemas import ChatCompletion, ChatCompletionChunk
from server.http.openai.logprobs import TextLogprobs
from server.http.schemas import TextCompletion
from server.text import TextCodec
from tests.tiny import make_tiny_folder

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPT = " the cat, \u732b\U0001f408 in the hat"  # characters of several tokens
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    torch.set_num_threads(1)
    folder = make_tiny_folder(tmp_path_factory.mktemp("models") / "tiny", tokenizer=True)
    model = torch_model(load_model(ModelFolder(folder, "tiny"), TorchPacking(torch.float32)))
    with Engine(model, TextCodec(Path(folder)), 64) as engine:
        yield engine


@pytest.fixture(scope="module")
def client(engine: Engine) -> Iterator[TestClient]:
    with TestClient(create_app(engine)) as client:
        yield client


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def strict(text: str) -> Any:
    return json.loads(text, parse_constant=refuse_constant)


def whole(client: TestClient, path: str, **body: Any) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    answer = strict(response.text)
    schema = TextCompletion if path == COMPLETIONS else ChatCompletion
    schema.model_validate_json(response.text, strict=True)
    return answer


def streamed(client: TestClient, path: str, **body: Any) -> list[Any]:
    response = client.post(path, json={**body, "stream": True})
    *events, done, _ = response.text.split("\n\n")
    assert done == "data: [DONE]"
    schema = TextCompletion if path == COMPLETIONS else ChatCompletionChunk
    for event in events:
        schema.model_validate_json(event.removeprefix("data: "), strict=True)
    return [strict(event.removeprefix("data: ")) for event in events]


def joined(events: list[Any], index: int = 0) -> dict[str, Any]:
    """The one choice that a stream of completions makes."""
    choices = [each for event in events for each in event["choices"] if each["index"] == index]
    lists: dict[str, list[Any]] = {}
    for choice in choices:
        for name, values in choice["logprobs"].items():
            lists.setdefault(name, []).extend(values)
    return {
        "index": index,
        "text": "".join(choice["text"] for choice in choices),
        "logprobs": lists,
        "finish_reason": choices[-1]["finish_reason"],
        "stop_reason": choices[-1]["stop_reason"],
    }


def assert_near(ours: list[Any], theirs: list[Any]) -> None:
    assert [each is None for each in ours] == [each is None for each in theirs]
    known = [(left, right) for left, right in zip(ours, theirs, strict=True) if left is not None]
    for left, right in known:
        assert left == pytest.approx(right, abs=TOLERANCE)


def test_a_completion_has_openais_lists_of_equal_length(client: TestClient, engine: Engine) -> None:
    body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0.9, "seed": 5}
    answer = whole(client, COMPLETIONS, logprobs=3, **body)
    (choice,) = answer["choices"]
    logprobs = choice["logprobs"]
    assert set(logprobs) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert {len(each) for each in logprobs.values()} == {answer["usage"]["completion_tokens"]}
    params = GenerationParams(12, SamplingParams(0.9, seed=5), logprobs=3)
    (expected,) = engine.generate([PROMPT], params)
    assert expected.logprobs is not None
    assert_near(logprobs["token_logprobs"], [each.logprob for each in expected.logprobs])
    for token, value, top, each in zip(
        logprobs["tokens"],
        logprobs["token_logprobs"],
        logprobs["top_logprobs"],
        expected.logprobs,
        strict=True,
    ):
        assert token == engine.text.token_text(each.token).text
        assert top[token] == value  # its own is always there
        assert 3 <= len(top) <= 4
        assert max(top.values()) == pytest.approx(each.top[0][1], abs=TOLERANCE)


def test_logprobs_0_gives_each_token_its_own_alone(client: TestClient) -> None:
    (choice,) = whole(client, COMPLETIONS, prompt=PROMPT, max_tokens=3, logprobs=0)["choices"]
    logprobs = choice["logprobs"]
    assert logprobs["top_logprobs"] == [
        {token: value}
        for token, value in zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True)
    ]


@pytest.mark.parametrize("max_tokens", [0, 5])
@pytest.mark.parametrize(("top", "cached"), [(0, 15), (1, 0), (5, 0)])
def test_an_echo_has_the_prompts_tokens_alike_cold_and_warm(
    client: TestClient, engine: Engine, top: int, cached: int, max_tokens: int
) -> None:
    """Without likeliest tokens the second one is served, but for the last token of its stored
    block: the value of the next token comes of it."""
    body = {"prompt": PROMPT, "echo": True, "logprobs": top, "max_tokens": max_tokens}
    engine.flush_cache()
    cold = whole(client, COMPLETIONS, temperature=0, **body)
    warm = whole(client, COMPLETIONS, temperature=0, **body)
    ids = engine.text.encode(PROMPT)
    assert 16 < len(ids) < 32
    for answer, served in ((cold, 0), (warm, cached)):
        (choice,) = answer["choices"]
        usage, logprobs = answer["usage"], choice["logprobs"]
        assert choice["text"].startswith(PROMPT)
        assert choice["finish_reason"] == "length"
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(ids), max_tokens)
        assert usage["prompt_tokens_details"]["cached_tokens"] == served
        assert {len(each) for each in logprobs.values()} == {len(ids) + max_tokens}
        assert logprobs["token_logprobs"][0] is None
        assert logprobs["top_logprobs"][0] is None
        assert all(type(value) is float for value in logprobs["token_logprobs"][1:])
    assert cold["choices"] == warm["choices"]
    if not max_tokens:
        assert warm["choices"][0]["text"] == PROMPT


def test_offsets_say_where_each_token_begins_in_the_text(
    client: TestClient, engine: Engine
) -> None:
    answer = whole(client, COMPLETIONS, prompt=PROMPT, echo=True, logprobs=0, max_tokens=0)
    logprobs = answer["choices"][0]["logprobs"]
    data = b""
    for token, offset in zip(engine.text.encode(PROMPT), logprobs["text_offset"], strict=True):
        assert len(data.decode(errors="ignore")) == offset  # of a character begun: where it begins
        data += engine.text.token_text(token).data
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert token.startswith("bytes:") or PROMPT.startswith(token, offset)


def test_special_tokens_count_in_an_echo_and_not_in_an_answer(
    client: TestClient, engine: Engine
) -> None:
    prompt = "<|im_start|>user"
    ids = engine.text.encode(prompt)
    for sent in (prompt, ids):
        answer = whole(
            client,
            COMPLETIONS,
            prompt=sent,
            echo=True,
            logprobs=0,
            max_tokens=3,
            temperature=0,
            logit_bias={"511": 100},
        )
        (choice,) = answer["choices"]
        assert choice["text"] == prompt
        assert choice["finish_reason"] == "stop"
        offsets = choice["logprobs"]["text_offset"]
        assert offsets[:2] == [0, len("<|im_start|>")]
        assert choice["logprobs"]["tokens"][-1] == "<|im_end|>"
        assert offsets[-1] == len(prompt)
        assert answer["usage"]["completion_tokens"] == 1


def test_a_special_token_inside_an_answer_takes_no_place_in_its_text(engine: Engine) -> None:
    (letter,) = engine.text.encode("x")
    entries = [TokenLogprob(token, -1.0) for token in (letter, 510, letter, letter)]
    logprobs = TextLogprobs(engine.text)
    assert logprobs.of(entries[:3])["text_offset"] == [0, 1, 1]
    assert logprobs.of(entries[3:])["text_offset"] == [2]


# No tokens without an echo are refused.
@pytest.mark.parametrize(
    ("echo", "max_tokens"), [(False, 1), (False, 9), (True, 0), (True, 1), (True, 9)]
)
def test_a_streamed_completion_joins_to_the_whole_one(
    client: TestClient, echo: bool, max_tokens: int
) -> None:
    body = {
        "prompt": [PROMPT, "another one"],
        "n": 2,
        "logprobs": 2,
        "echo": echo,
        "max_tokens": max_tokens,
        "temperature": 1.1,
        "seed": 9,
        "presence_penalty": 0.5,
    }
    answer = whole(client, COMPLETIONS, **body)
    events = streamed(client, COMPLETIONS, **body)
    for index, expected in enumerate(answer["choices"]):
        choice = joined(events, index)
        ours, theirs = choice.pop("logprobs"), expected.pop("logprobs")
        assert choice == expected
        assert ours["tokens"] == theirs["tokens"]
        assert ours["text_offset"] == theirs["text_offset"]
        assert_near(ours["token_logprobs"], theirs["token_logprobs"])
    assert events[-1]["usage"]["completion_tokens"] == answer["usage"]["completion_tokens"]


def test_an_echo_without_logprobs_reads_the_cache(client: TestClient, engine: Engine) -> None:
    engine.flush_cache()
    for cached in (0, 32):
        answer = whole(client, COMPLETIONS, prompt=list(range(4, 44)), echo=True, max_tokens=2)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
        assert answer["choices"][0]["logprobs"] is None
        assert answer["choices"][0]["text"].startswith(engine.text.decode(range(4, 44)))


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_goes_before_the_answers_of_a_beam_search_and_alone(
    client: TestClient, stream: bool
) -> None:
    body: dict[str, Any] = {"prompt": "so", "echo": True, "max_tokens": 3, "n": 2}
    if not stream:
        answer = whole(client, COMPLETIONS, use_beam_search=True, **body)
        assert all(choice["text"].startswith("so") for choice in answer["choices"])
    else:
        events = streamed(client, COMPLETIONS, **body)
        for index in range(2):
            own = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
            assert own[0]["text"].startswith("so")
            assert own[0]["logprobs"] is None


def test_floors_keep_an_answer_strict_json(
    client: TestClient, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = engine._loop._steps._model
    forward = model.forward

    def steep(spans: Any) -> torch.Tensor:
        logits = torch.full_like(forward(spans), -1e30)
        logits[:, 40] = 1e30
        return logits

    monkeypatch.setattr(model, "forward", steep)
    answer = whole(client, COMPLETIONS, prompt="abc", top_k=1, logprobs=5, echo=True, max_tokens=2)
    logprobs = answer["choices"][0]["logprobs"]
    assert logprobs["token_logprobs"] == [None, -9999.0, -9999.0, 0.0, 0.0]
    assert set(logprobs["top_logprobs"][-1].values()) == {0.0, -9999.0}


USER = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize("top", [None, 0, 2, 20])
def test_a_chat_has_a_content_list_with_an_entry_for_each_token(
    client: TestClient, engine: Engine, top: int | None
) -> None:
    body = {"messages": USER, "max_tokens": 8, "logprobs": True, "top_logprobs": top}
    answer = whole(client, CHAT, temperature=1.0, seed=4, **body)
    (choice,) = answer["choices"]
    content = choice["logprobs"]["content"]
    assert len(content) == answer["usage"]["completion_tokens"]
    shown = [entry for entry in content if not entry["token"].startswith("<|")]  # the special ones
    data = b"".join(bytes(entry["bytes"]) for entry in shown)
    assert data.decode(errors="replace") == choice["message"]["content"]
    for entry in content:
        assert len(entry["top_logprobs"]) == (top or 0)
        values = [each["logprob"] for each in entry["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert sum(map(math.exp, values)) <= 1 + 1e-6
        same = [each for each in entry["top_logprobs"] if each["bytes"] == entry["bytes"]]
        assert all(each["logprob"] == entry["logprob"] for each in same)


def test_a_streamed_chat_has_the_same_entries(client: TestClient) -> None:
    body = {"messages": USER, "max_tokens": 8, "logprobs": True, "top_logprobs": 2}
    sampling = {"temperature": 1.0, "seed": 4}
    answer = whole(client, CHAT, **body, **sampling)
    chunks = [event["choices"][0] for event in streamed(client, CHAT, **body, **sampling)]
    entries = [e for chunk in chunks if chunk["logprobs"] for e in chunk["logprobs"]["content"]]
    expected = answer["choices"][0]["logprobs"]["content"]
    assert [entry["bytes"] for entry in entries] == [entry["bytes"] for entry in expected]
    assert_near([e["logprob"] for e in entries], [e["logprob"] for e in expected])
    text = "".join(chunk["delta"].get("content", "") for chunk in chunks)
    assert text == answer["choices"][0]["message"]["content"]


def test_without_logprobs_there_are_none(client: TestClient) -> None:
    answer = whole(client, CHAT, messages=USER, max_tokens=3, logprobs=False)
    assert answer["choices"][0]["logprobs"] is None


def test_a_bias_for_a_token_that_the_model_has_not_is_refused_by_name(client: TestClient) -> None:
    response = client.post(CHAT, json={"messages": USER, "logit_bias": {"512": 1}})
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, "logit_bias")
    assert "511" in error["message"]


def test_a_biased_token_is_all_that_comes(client: TestClient, engine: Engine) -> None:
    (token,) = engine.text.encode("x")
    body = {"max_tokens": 4, "logit_bias": {str(token): 100}}
    assert whole(client, CHAT, messages=USER, **body)["choices"][0]["message"]["content"] == "xxxx"
