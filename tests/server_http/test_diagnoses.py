"""Why a request was not served what an earlier one left in the cache, in both vendors' words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from fastapi.testclient import TestClient

from server.http.settings import HttpSettings
from tests.server_http.anthropic.talking import TEMPLATE
from tests.server_http.keys import ACME, BETA, bearer, ring
from tests.server_http.real import CHAT, ask, client_of, tiny_engine
from tests.tiny import make_tiny_folder

MESSAGES = "/v1/messages"
SYSTEM = "Be kind to people. " * 10
TOOL = {"name": "look", "description": "Look it up.", "input_schema": {"type": "object"}}
HISTORY = [
    {"role": "user", "content": "Who are you and what do you do? " * 4},
    {"role": "assistant", "content": "I am a model. " * 5},
    {"role": "user", "content": "Go on."},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("diagnoses") / "tiny"
    make_tiny_folder(path, tokenizer=True)
    file = path / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps({**settings, "chat_template": TEMPLATE}))
    return path


@pytest.fixture
def client(folder: Path) -> Iterator[TestClient]:
    with tiny_engine(folder, num_blocks=120) as engine, client_of(engine) as client:
        yield client


def message(client: TestClient, previous: Any = ..., **fields: Any) -> Any:
    """Anthropic's answer to the history, compared with an earlier one."""
    asked = {} if previous is ... else {"diagnostics": {"previous_message_id": previous}}
    body = {"system": SYSTEM, "messages": HISTORY, "tools": [TOOL], **fields, **asked}
    return ask(client, MESSAGES, **body)


def reason(answer: Any) -> dict[str, Any]:
    anthropic.types.Message.model_validate(answer)
    found: dict[str, Any] = answer["diagnostics"]["cache_miss_reason"]
    return found


def test_nothing_is_told_unasked_and_null_where_nothing_was_missed(client: TestClient) -> None:
    assert "diagnostics" not in message(client)
    first = message(client, None)
    assert first["diagnostics"] is None
    assert message(client, first["id"])["diagnostics"] is None
    longer = [*HISTORY, {"role": "assistant", "content": "Yes."}, HISTORY[2]]
    assert message(client, first["id"], messages=longer)["diagnostics"] is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"tools": [{**TOOL, "name": "read"}]}, "tools_changed"),
        ({"system": "Today: " + SYSTEM}, "system_changed"),
        ({"messages": [{**HISTORY[0], "content": "Who?"}, *HISTORY[1:]]}, "messages_changed"),
        ({"tools": [{**TOOL, "name": "read"}], "system": "Today: " + SYSTEM}, "tools_changed"),
    ],
)
def test_what_changed_is_named_with_the_tokens_that_it_cost(
    client: TestClient, change: dict[str, Any], expected: str
) -> None:
    first = message(client)  # known although it did not ask
    answer = message(client, first["id"], **change)
    usage = [each["usage"] for each in (first, answer)]
    whole = [each["input_tokens"] + each["cache_read_input_tokens"] for each in usage]
    missed = min(whole[0], whole[1] - 1) - usage[1]["cache_read_input_tokens"]
    assert missed > 50
    assert reason(answer) == {"type": expected, "cache_missed_input_tokens": missed}
    end = answer["diagnostics"]["match_end"]
    assert end == usage[1]["match_end"]
    assert end["reason"] == "diverged"
    assert answer["diagnostics"]["evicted_tokens"] == 0


def test_what_was_evicted_is_not_blamed_on_the_client(client: TestClient) -> None:
    first = message(client)
    for number in range(8):  # other prompts than fit
        text = "abcdefgh"[number] * 350
        message(client, system=text, messages=[HISTORY[2]], tools=[])
    answer = message(client, first["id"])
    assert reason(answer) == {"type": "unavailable"}
    assert answer["diagnostics"]["match_end"]["reason"] == "evicted"
    assert answer["diagnostics"]["evicted_tokens"] > 50
    client.post("/flush_cache")
    edited = message(client, first["id"], messages=[HISTORY[0], HISTORY[1], HISTORY[0]])
    assert edited["diagnostics"]["match_end"]["reason"] in ("cold", "evicted")


def test_a_stream_tells_it_in_its_first_message(client: TestClient) -> None:
    first = message(client)
    body = {"system": "Today: " + SYSTEM, "messages": HISTORY, "tools": [TOOL], "stream": True}
    body |= {"max_tokens": 1, "diagnostics": {"previous_message_id": first["id"]}}
    events = client.post(MESSAGES, json=body).text.split("\n\n")
    start = json.loads(events[0].partition("data: ")[2])
    assert reason(start["message"])["type"] == "system_changed"


def test_the_ids_of_others_are_not_found(folder: Path, tmp_path: Path) -> None:
    settings = HttpSettings(keys=ring(tmp_path))
    body: dict[str, Any] = {"system": SYSTEM, "messages": HISTORY, "max_tokens": 1}
    with tiny_engine(folder, num_blocks=120) as engine, client_of(engine, settings) as client:

        def told(key: str, **fields: Any) -> Any:
            response = client.post(MESSAGES, json={**body, **fields}, headers=bearer(key))
            assert response.status_code == 200
            return response.json()

        first = told(ACME)["id"]
        compared = {"diagnostics": {"previous_message_id": first}}
        not_found = {"cache_miss_reason": {"type": "previous_message_not_found"}}
        assert told(ACME, **compared)["diagnostics"] is None
        assert told(BETA, **compared)["diagnostics"] == not_found
        assert told(ACME, cache_salt="other", **compared)["diagnostics"] == not_found
        unknown = {"diagnostics": {"previous_message_id": "msg_unknown"}}
        assert told(ACME, **unknown)["diagnostics"] == not_found


def chat(client: TestClient, previous: str | None = None, **fields: Any) -> Any:
    """OpenAI's answer, likewise."""
    options = {"comparison_response_id": previous} if previous else {}
    body = {"messages": [{"role": "system", "content": SYSTEM}, *HISTORY], **fields}
    return ask(client, CHAT, prompt_cache_options=options, **body)


def test_chat_completions_tell_it_in_openais_words(client: TestClient) -> None:
    first = chat(client)
    assert "prompt_cache_diagnostics" not in first
    hit = chat(client, first["id"])["prompt_cache_diagnostics"]
    assert hit == {"type": "cache_hit"}
    unknown = chat(client, "chatcmpl-unknown")["prompt_cache_diagnostics"]
    assert unknown == {"type": "comparison_response_not_found"}
    changed = [{"role": "system", "content": SYSTEM + "Now!"}, *HISTORY]
    missed = chat(client, first["id"], messages=changed)
    found, details = missed["prompt_cache_diagnostics"], missed["usage"]["prompt_tokens_details"]
    assert (found["type"], found["reason"]) == ("cache_miss", "input_changed")
    prompt = first["usage"]["prompt_tokens"]
    assert found["cache_missed_tokens"] == prompt - details["cached_tokens"]
    assert found["comparison_reusable_tokens"] == details["cached_tokens"] // 16 * 16
    assert found["match_end"] == details["match_end"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools_changed"),
        (
            {"messages": [{"role": "system", "content": SYSTEM}, HISTORY[1], HISTORY[2]]},
            "context_compacted",
        ),
    ],
)
def test_chat_completions_name_what_changed(
    client: TestClient, change: dict[str, Any], expected: str
) -> None:
    first = chat(client)
    found = chat(client, first["id"], **change)["prompt_cache_diagnostics"]
    assert (found["type"], found["reason"]) == ("cache_miss", expected)


def test_a_request_that_reads_no_cache_has_no_diagnosis(client: TestClient) -> None:
    first = chat(client)
    found = chat(client, first["id"], cache_mode="none")["prompt_cache_diagnostics"]
    assert found == {"type": "unavailable"}


def test_a_plain_completion_names_it_among_what_has_no_effect(client: TestClient) -> None:
    options = {"comparison_response_id": "cmpl-1"}
    body = {"prompt": "Hello", "max_tokens": 1, "prompt_cache_options": options}
    response = client.post("/v1/completions", json=body)
    assert response.headers["X-Ignored-Fields"] == "prompt_cache_options.comparison_response_id"


def test_the_chunk_with_the_counts_tells_it(client: TestClient) -> None:
    first = chat(client)
    for options in ({}, {"stream_options": {"include_usage": True}}):
        changed = [{"role": "user", "content": f"{len(options)} " * 99}]
        body = {"messages": changed, "max_tokens": 1, "stream": True, **options}
        body["prompt_cache_options"] = {"comparison_response_id": first["id"]}
        text = client.post(CHAT, json=body).text
        chunks = [json.loads(each[6:]) for each in text.split("\n\n")[:-2]]
        told = [each for each in chunks if "prompt_cache_diagnostics" in each]
        assert told == [each for each in chunks if each.get("usage")]
        assert told[0]["prompt_cache_diagnostics"]["reason"] == "input_changed"
