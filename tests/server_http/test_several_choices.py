"""Several answers to a prompt over HTTP: whole, streamed, and found by beam search."""

from __future__ import annotations

from typing import Any

import pytest

from server.generation_params import GenerationParams
from server.http.chat_schemas import ChatCompletion, ChatCompletionChunk
from server.http.schemas import TextCompletion
from tests.server_http.running import Running, events
from tests.server_http.scripted import REPLY

TEXT = "".join(REPLY)
LAST = "".join([*REPLY[:-1], "2", REPLY[-1]])  # what the last of three answers is
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


def chat(prompt: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}], **fields}


def test_a_completion_has_a_choice_for_each_answer(server: Running) -> None:
    response = server.post(COMPLETIONS, {"prompt": "three texts", "n": 3})
    answer = TextCompletion.model_validate_json(response.content, strict=True)
    assert [(c.index, c.text) for c in answer.choices] == [(0, TEXT), (1, TEXT), (2, LAST)]
    assert {c.finish_reason for c in answer.choices} == {"stop"}


def test_a_chat_has_a_choice_for_each_answer(server: Running) -> None:
    response = server.post(CHAT, chat("three chats", n=3))
    answer = ChatCompletion.model_validate_json(response.content, strict=True)
    assert [(c.index, c.message.content) for c in answer.choices] == [
        (0, TEXT),
        (1, TEXT),
        (2, LAST),
    ]


def test_the_prompt_counts_once_and_every_answer_counts(server: Running) -> None:
    prompt = "a prompt of 20 bytes"
    server.post(COMPLETIONS, {"prompt": prompt})
    usage = server.post(COMPLETIONS, {"prompt": [prompt, "second"], "n": 3}).json()["usage"]
    assert usage["prompt_tokens"] == 26
    assert usage["completion_tokens"] == 2 * (4 + 4 + 5)
    assert usage["total_tokens"] == 26 + 26
    details = usage["prompt_tokens_details"]
    assert details["cached_tokens"] == 16
    assert details["match_end"] == details["match_ends"][0]
    assert [end["reason"] for end in details["match_ends"]] == ["full", "cold"]


def test_choices_of_several_prompts_are_numbered_prompt_by_prompt(server: Running) -> None:
    answer = server.post(COMPLETIONS, {"prompt": ["one", "two"], "n": 3}).json()
    assert [(c["index"], c["text"]) for c in answer["choices"]] == [
        (0, TEXT),
        (1, TEXT),
        (2, LAST),
        (3, TEXT),
        (4, TEXT),
        (5, LAST),
    ]


@pytest.mark.parametrize("include_usage", [False, True])
def test_a_stream_has_the_answers_in_turn(server: Running, include_usage: bool) -> None:
    body: dict[str, Any] = {
        "prompt": f"stream three {include_usage}",
        "n": 3,
        "stream": True,
        "stream_options": {"include_usage": include_usage},
    }
    chunks = [
        TextCompletion.model_validate(each) for each in events(server.post(COMPLETIONS, body))
    ]
    usage = chunks.pop() if include_usage else chunks[-1]
    choices = [chunk.choices[0] for chunk in chunks]
    assert [choice.index for choice in choices[:6]] == [0, 1, 2, 0, 1, 2]
    for index, text in enumerate((TEXT, TEXT, LAST)):
        own = [choice for choice in choices if choice.index == index]
        assert "".join(choice.text for choice in own) == text
        assert [choice.finish_reason for choice in own] == [None] * (len(own) - 1) + ["stop"]
    assert usage.usage is not None
    assert usage.usage.completion_tokens == 13
    assert usage.usage.prompt_tokens == len(body["prompt"])


def test_a_streamed_chat_begins_each_answer_with_its_role(server: Running) -> None:
    chunks = [
        ChatCompletionChunk.model_validate(each)
        for each in events(server.post(CHAT, chat("stream chats", n=3, stream=True)))
    ]
    for index, text in enumerate((TEXT, TEXT, LAST)):
        own = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == index]
        assert own[0].delta.role == "assistant"
        assert all(choice.delta.role is None for choice in own[1:])
        assert "".join(choice.delta.content or "" for choice in own) == text
        assert own[-1].finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_one_failed_answer_fails_the_request(server: Running, stream: bool) -> None:
    response = server.post(COMPLETIONS, {"prompt": "please fail", "n": 2, "stream": stream})
    if stream:
        assert events(response)[-1]["error"]["code"] == "engine_error"
    else:
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "engine_error"


def test_a_hang_up_ends_all_answers_by_one_abort(server: Running) -> None:
    connection = server.send(COMPLETIONS, {"prompt": "several hold", "n": 3, "stream": True})
    record = server.engine.record
    record.wait_until(lambda: bool(record.ids_of("several hold")))
    connection.close()
    (request_id,) = record.ids_of("several hold")
    record.wait_until(lambda: request_id in record.ended)
    assert record.aborted.count(request_id) == 1


def params_of(server: Running, prompt: str) -> GenerationParams:
    (request_id,) = server.engine.record.ids_of(prompt)
    return server.engine.record.submitted[request_id][1]


def test_the_fields_of_beam_search_reach_the_engine(server: Running) -> None:
    fields = {"best_of": 5, "length_penalty": 0.5, "early_stopping": "never", "temperature": 0}
    response = server.post(
        COMPLETIONS, {"prompt": "beams", "n": 2, "use_beam_search": True, **fields}
    )
    assert [c["index"] for c in response.json()["choices"]] == [0, 1]
    assert "x-ignored-fields" not in response.headers
    params = params_of(server, "beams")
    assert (params.n, params.use_beam_search, params.best_of) == (2, True, 5)
    assert (params.length_penalty, params.early_stopping) == (0.5, "never")
    assert (params.width, params.sampling) == (5, None)


def test_without_beams_their_fields_are_named_as_ignored(server: Running) -> None:
    response = server.post(
        COMPLETIONS, {"prompt": "no beams", "length_penalty": 2.0, "best_of": 1, "n": None}
    )
    assert response.headers["x-ignored-fields"] == "length_penalty"
    assert not params_of(server, "no beams").use_beam_search
