"""Structured output from a client to a real engine with a tiny model, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from openai import BadRequestError, OpenAI
from pydantic import BaseModel

from tests.server_http.real import CHAT, COMPLETIONS, ask, client_of, tiny_engine


class Pet(BaseModel):
    """What a client of OpenAI's makes a schema of."""

    name: str
    is_cat: bool
    lives: int | None


MESSAGES: list[Any] = [{"role": "user", "content": "Tell me of a pet."}]
FLAG = {
    "type": "object",
    "properties": {"yes": {"type": "boolean"}},
    "required": ["yes"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "flag", "schema": FLAG, "strict": True}}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("structured") / "tiny"
    with tiny_engine(folder, 256) as engine, client_of(engine) as made:
        yield made


def chunks(client: TestClient, path: str, **body: Any) -> list[dict[str, Any]]:
    """The choices of a stream, in order."""
    with client.stream("POST", path, json={"stream": True, **body}) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    return [choice for line in lines[:-1] for choice in json.loads(line)["choices"]]


def test_openais_client_gets_what_it_parses(client: TestClient) -> None:
    openai = OpenAI(api_key="none", base_url="http://127.0.0.1/v1", http_client=client)
    ended = 0
    for seed in range(6):
        answer = openai.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            max_tokens=400,
            seed=seed,
            temperature=0.6,
            logit_bias={"34": 3},
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "Pet", "schema": Pet.model_json_schema(), "strict": True},
            },
        )
        choice = answer.choices[0]
        if choice.finish_reason == "stop":
            ended += 1
            Pet.model_validate_json(choice.message.content or "")
    assert ended


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_streamed_is_whole_and_of_the_schema(client: TestClient, path: str) -> None:
    prompt = {"messages": MESSAGES} if path == CHAT else {"prompt": "Yes or no?"}
    for seed in range(3):
        body = {**prompt, "response_format": FORMAT, "max_tokens": 300, "seed": seed}
        (whole,) = ask(client, path, temperature=1.0, n=1, **body)["choices"]
        text = whole["message"]["content"] if path == CHAT else whole["text"]
        pieces = chunks(client, path, temperature=1.0, **body)
        shown = [each["delta"].get("content") if path == CHAT else each["text"] for each in pieces]
        assert "".join(filter(None, shown)) == text
        assert whole["finish_reason"] == pieces[-1]["finish_reason"] == "stop"
        assert isinstance(json.loads(text)["yes"], bool)


def test_a_schema_that_cannot_be_kept_to_is_a_400_that_names_it(client: TestClient) -> None:
    openai = OpenAI(api_key="none", base_url="http://127.0.0.1/v1", http_client=client)
    schema = {"type": "array", "uniqueItems": True}
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with pytest.raises(BadRequestError) as caught:
        openai.chat.completions.create(model="tiny", messages=MESSAGES, response_format=form)
    assert caught.value.param == "response_format"
    assert caught.value.code == "invalid_constraint"
    assert 'Unimplemented keys: ["uniqueItems"]' in caught.value.message
    form["json_schema"]["strict"] = False
    assert ask(client, CHAT, messages=MESSAGES, response_format=form)["choices"]


def test_log_probabilities_are_numbers_whatever_may_not_come(client: TestClient) -> None:
    body = {"prompt": "x", "guided_choice": ["the end"], "max_tokens": 20, "top_k": 1, "echo": True}
    response = client.post(COMPLETIONS, json={**body, "logprobs": 5})
    assert response.status_code == 200

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    (choice,) = json.loads(response.content, parse_constant=refuse)["choices"]
    assert choice["text"] == "xthe end"
    values = choice["logprobs"]["token_logprobs"]
    assert values[0] is None
    assert all(-9999 <= value <= 0 for value in values[1:])


def test_what_ended_an_answer_is_told(client: TestClient) -> None:
    beta = {"prompt": "x", "guided_choice": ["alpha beta gamma delta"], "max_tokens": 40}
    for fields, text, reason in (
        ({}, "alpha beta gamma delta", None),
        ({"stop": ["zz", "ga"]}, "alpha beta ", "ga"),
        ({"stop": "ga", "include_stop_str_in_output": True}, "alpha beta ga", "ga"),
        ({"stop_token_ids": [ord("g")]}, "alpha beta ", ord("g")),
        ({"stop_token_ids": [ord("g")], "include_stop_str_in_output": True}, "alpha beta g", 103),
        ({"stop": "beta", "min_tokens": 12}, "alpha beta gamma delta", None),
    ):
        (choice,) = ask(client, COMPLETIONS, **beta, **fields)["choices"]
        assert (choice["text"], choice["finish_reason"]) == (text, "stop")
        assert choice["stop_reason"] == reason
        pieces = chunks(client, COMPLETIONS, **beta, **fields)
        assert "".join(each["text"] for each in pieces) == text
        assert pieces[-1]["stop_reason"] == reason


def test_several_answers_and_prompts_keep_to_one_constraint(client: TestClient) -> None:
    answer = ask(
        client,
        COMPLETIONS,
        prompt=["one", "two"],
        n=3,
        guided_regex="[0-9]{2}:[0-9]{2}",
        max_tokens=9,
        temperature=1.0,
    )
    texts = [choice["text"] for choice in answer["choices"]]
    assert len(texts) == 6
    assert all(re.fullmatch("[0-9]{2}:[0-9]{2}", text) for text in texts)


def test_the_description_has_every_field(client: TestClient) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for body in ("CompletionRequest", "ChatRequest"):
        fields = schemas[body]["properties"]
        assert {"response_format", "structured_outputs", "guided_json", "min_tokens"} <= set(fields)
    assert set(schemas["JsonSchemaFormat"]["properties"]) == {
        "name",
        "description",
        "schema",
        "strict",
    }
    for choice in ("TextChoice", "ChatChoice", "ChunkChoice"):
        assert "stop_reason" in schemas[choice]["properties"]
