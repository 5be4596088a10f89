"""Whole and streamed answers of both endpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from radix_engine.model.sampling_params import SamplingParams
from server.http.chat_schemas import ChatCompletion, ChatCompletionChunk
from server.http.schemas import TextCompletion
from tests.server_http.running import Running, events
from tests.server_http.scripted import REPLY

TEXT = "".join(REPLY)
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


def body_for(path: str, prompt: str, **fields: Any) -> dict[str, Any]:
    if path == COMPLETIONS:
        return {"prompt": prompt, **fields}
    return {"messages": [{"role": "user", "content": prompt}], **fields}


def usage_of(prompt: str, cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(REPLY),
        "total_tokens": len(prompt) + len(REPLY),
        "prompt_tokens_details": {
            "cached_tokens": cached,
            "match_end": {
                "reason": "full" if cached else "cold",
                "position": cached,
                "cause": None,
                "lost_tokens": 0,
                "branch_tokens": 0,
            },
        },
    }


def test_a_whole_completion_has_openais_form(server: Running) -> None:
    response = server.post(COMPLETIONS, {"prompt": "whole text"})
    answer = TextCompletion.model_validate_json(response.content, strict=True)
    assert response.status_code == 200
    assert answer.id.startswith("cmpl-")
    assert response.headers["x-request-id"] == answer.id
    assert answer.model == "scripted-1"
    assert [(c.index, c.text, c.finish_reason) for c in answer.choices] == [(0, TEXT, "stop")]


def test_a_whole_chat_answer_has_openais_form(server: Running) -> None:
    response = server.post(CHAT, body_for(CHAT, "whole chat"))
    answer = ChatCompletion.model_validate_json(response.content, strict=True)
    assert response.status_code == 200
    assert answer.id.startswith("chatcmpl-")
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].finish_reason == "stop"


def test_a_streamed_completion_has_openais_form(server: Running) -> None:
    chunks = [
        TextCompletion.model_validate(each)
        for each in events(server.post(COMPLETIONS, {"prompt": "stream text", "stream": True}))
    ]
    assert "".join(chunk.choices[0].text for chunk in chunks) == TEXT
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, "stop"]
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_streamed_chat_answer_has_openais_form(server: Running) -> None:
    chunks = [
        ChatCompletionChunk.model_validate(each)
        for each in events(server.post(CHAT, body_for(CHAT, "stream chat", stream=True)))
    ]
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant"
    assert deltas[0].content == ""
    assert [delta.content for delta in deltas[1:-1]] == list(REPLY)
    assert deltas[-1].model_fields_set == set()
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 5 + ["stop"]


@pytest.mark.parametrize("cached", [0, 32], ids=["miss", "hit"])
@pytest.mark.parametrize("mode", ["whole", "stream", "stream_with_usage"])
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_cached_tokens_are_always_reported(
    server: Running, path: str, mode: str, cached: int
) -> None:
    prompt = f"{path} {mode} {cached}".ljust(40, ".")
    if cached:
        server.post(path, body_for(path, prompt))
    if mode == "whole":
        assert server.post(path, body_for(path, prompt)).json()["usage"] == usage_of(prompt, cached)
        return
    options = {"include_usage": True} if mode == "stream_with_usage" else None
    chunks = events(server.post(path, body_for(path, prompt, stream=True, stream_options=options)))
    *others, last = chunks
    assert last["usage"] == usage_of(prompt, cached)
    if options:
        assert last["choices"] == []
        assert others[-1]["choices"][0]["finish_reason"] == "stop"
        assert all(chunk["usage"] is None for chunk in others)
    else:
        assert last["choices"][0]["finish_reason"] == "stop"
        assert all("usage" not in chunk for chunk in others)


def test_several_prompts_give_a_choice_each(server: Running) -> None:
    prompts = ["first of three", "second", "and third"]
    answer = server.post(COMPLETIONS, {"prompt": prompts, "max_tokens": 2}).json()
    assert [(c["index"], c["text"], c["finish_reason"]) for c in answer["choices"]] == [
        (index, "Hello, ", "length") for index in range(3)
    ]
    assert answer["usage"]["prompt_tokens"] == sum(map(len, prompts))
    assert answer["usage"]["completion_tokens"] == 6


def test_several_prompts_stream_with_their_indexes_and_one_usage(server: Running) -> None:
    prompts = [list(b"ids of one"), list(b"ids of two")]
    chunks = events(server.post(COMPLETIONS, {"prompt": prompts, "stream": True}))
    for index in range(2):
        mine = [each for each in chunks if each["choices"][0]["index"] == index]
        assert "".join(each["choices"][0]["text"] for each in mine) == TEXT
        assert mine[-1]["choices"][0]["finish_reason"] == "stop"
    assert [each["usage"]["prompt_tokens"] for each in chunks if "usage" in each] == [20]
    assert "usage" in chunks[-1]


def test_a_prompt_may_be_token_ids(server: Running) -> None:
    assert server.post(COMPLETIONS, {"prompt": list(b"plain ids")}).status_code == 200
    assert server.engine.record.ids_of("plain ids")


def params_of(server: Running, prompt: str) -> Any:
    (request_id,) = server.engine.record.ids_of(prompt)
    return server.engine.record.submitted[request_id][1]


def test_sampling_fields_and_stops_reach_the_engine(server: Running) -> None:
    fields = {"temperature": 0, "top_p": 0.5, "top_k": 7, "seed": -(2**63), "max_tokens": 3}
    assert server.post(COMPLETIONS, {"prompt": "fields", "stop": ["x", "yz"], **fields}).is_success
    params = params_of(server, "fields")
    assert (params.max_tokens, params.stop) == (3, ("x", "yz"))
    assert (params.sampling.temperature, params.sampling.top_p) == (0, 0.5)
    assert (params.sampling.top_k, params.sampling.seed) == (7, -(2**63))


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_penalties_and_biases_reach_the_engine_and_are_off_by_default(
    server: Running, path: str
) -> None:
    fields: dict[str, Any] = {
        "min_p": 0.25,
        "repetition_penalty": 1.5,
        "presence_penalty": -2,
        "frequency_penalty": 2,
        "logit_bias": {"3": -100, "4": 0.5},
    }
    response = server.post(path, body_for(path, f"penal {path}", **fields))
    assert response.is_success
    assert "x-ignored-fields" not in response.headers
    sampling = params_of(server, f"penal {path}").sampling
    assert (sampling.min_p, sampling.repetition_penalty) == (0.25, 1.5)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (-2, 2)
    assert sampling.logit_bias == {3: -100, 4: 0.5}
    server.post(path, body_for(path, f"plain {path}"))
    params = params_of(server, f"plain {path}")
    assert params.sampling == SamplingParams()
    assert (params.logprobs, params.prompt_logprobs) == (None, None)


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_whether_to_go_on_past_the_end_of_the_text_reaches_the_engine(
    server: Running, path: str
) -> None:
    for sent, expected in ((True, True), (False, False), (None, False)):
        prompt = f"on {path} {sent}"
        assert server.post(path, body_for(path, prompt, ignore_eos=sent)).is_success
        assert params_of(server, prompt).ignore_eos is expected


def test_the_models_own_ways_stand_for_what_was_left_out(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = SamplingParams(0.5, 0.9, 40, min_p=0.1, repetition_penalty=1.1)
    monkeypatch.setattr(server.engine, "info", replace(server.engine.info, sampling=own))
    server.post(COMPLETIONS, {"prompt": "own ways", "repetition_penalty": 1, "seed": 3})
    assert params_of(server, "own ways").sampling == replace(own, repetition_penalty=1, seed=3)


@pytest.mark.parametrize(("sent", "top_k"), [(-1, 0), (0, 0), (None, 0), (5, 5)])
def test_top_k_below_one_means_no_limit(server: Running, sent: int | None, top_k: int) -> None:
    assert server.post(COMPLETIONS, {"prompt": f"top {sent}", "top_k": sent}).is_success
    assert params_of(server, f"top {sent}").sampling.top_k == top_k


@pytest.mark.parametrize("stop", ["end", ["end"]])
def test_one_stop_may_be_sent_with_or_without_a_list(server: Running, stop: object) -> None:
    prompt = f"stop {type(stop)}"
    assert server.post(COMPLETIONS, {"prompt": prompt, "stop": stop}).is_success
    assert params_of(server, prompt).stop == ("end",)


def test_defaults_are_openais_and_chat_fills_the_context(server: Running) -> None:
    server.post(COMPLETIONS, {"prompt": "default text"})
    server.post(CHAT, body_for(CHAT, "default chat"))
    text, chat = params_of(server, "default text"), params_of(server, "default chat")
    assert (text.max_tokens, text.stop, text.sampling.temperature) == (16, (), 1.0)
    assert chat.max_tokens == server.engine.info.context_length
    assert chat.sampling.seed is None


@pytest.mark.parametrize(
    "limit",
    [
        {"max_tokens": 2},
        {"max_completion_tokens": 2},
        {"max_tokens": 2, "max_completion_tokens": 2},
    ],
)
def test_both_names_of_the_token_limit_are_honoured(server: Running, limit: dict[str, int]) -> None:
    answer = server.post(CHAT, body_for(CHAT, f"limit {limit}", **limit)).json()
    assert answer["choices"][0]["message"]["content"] == "Hello, "
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("model", ["scripted-1", "", None])
def test_the_model_may_be_named_or_left_out(server: Running, model: str | None) -> None:
    answer = server.post(COMPLETIONS, {"prompt": "model", "model": model})
    assert answer.json()["model"] == "scripted-1"


def test_ignored_fields_are_named_in_a_header(server: Running) -> None:
    fields = {
        "store": True,
        "b\r\n\u00e9": 1,
        "user": "me",
        "metadata": {},
        "stream_options": {"more": 1},
        "logprobs": None,
        "presence_penalty": 0.0,
    }
    response = server.post(COMPLETIONS, {"prompt": "ignored", **fields})
    assert response.status_code == 200
    assert response.headers["x-ignored-fields"] == "store, b%0D%0A%C3%A9, stream_options.more"
    many = {f"{'x' * 100}{index}": 1 for index in range(40)}
    header = server.post(COMPLETIONS, {"prompt": "ignored", **many}).headers["x-ignored-fields"]
    assert header.endswith(", and 8 more")
    assert len(header) < 32 * 70


def test_a_field_without_a_name_is_named_so_that_a_header_can_show_it(server: Running) -> None:
    response = server.post(COMPLETIONS, {"prompt": "ignored", "store": True, "": 1})
    assert response.headers["x-ignored-fields"] == 'store, ""'


def test_no_header_when_nothing_is_ignored(server: Running) -> None:
    assert "x-ignored-fields" not in server.post(COMPLETIONS, {"prompt": "ignored"}).headers


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def test_tools_that_the_template_does_not_show_are_named_as_ignored(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = body_for(CHAT, "with tools") | {"tools": [TOOL]}
    shown = server.post(CHAT, body)
    assert shown.is_success
    assert "X-Ignored-Fields" not in shown.headers
    monkeypatch.setattr(server.engine.text, "takes_tools", False)
    assert server.post(CHAT, body).headers["X-Ignored-Fields"] == "tools"
