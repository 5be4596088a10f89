"""The events of a streamed answer, and clients that hang up."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from server.http.anthropic.schemas import Message, MessageEvent
from server.http.settings import HttpSettings
from tests.server_http.anthropic.talking import TOOLS
from tests.server_http.running import Running, running_server

PATH = "/v1/messages"


def body(prompt: str, **fields: Any) -> dict[str, Any]:
    return {"max_tokens": 50, "messages": [{"role": "user", "content": prompt}]} | fields


def events(response: httpx.Response) -> list[Any]:
    """The data of each event; checks the framing, and each event's shape."""
    assert response.status_code == 200, response.read()
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *frames, rest = response.read().decode("ascii").split("\n\n")
    assert rest == ""
    found = []
    for frame in frames:
        name, data = frame.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
        MessageEvent.model_validate(found[-1], strict=True)
    return found


def test_a_stream_has_the_message_then_its_blocks_then_its_end(server: Running) -> None:
    start, *blocks, delta, stop = events(server.post(PATH, body("answer calls", stream=True)))
    message = start["message"]
    assert message["content"] == []
    assert (message["stop_reason"], message["stop_sequence"]) == (None, None)
    assert message["usage"]["output_tokens"] == 1
    assert delta["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert delta["usage"] == {**message["usage"], "output_tokens": 6}
    assert stop == {"type": "message_stop"}
    assert {each["type"].rpartition("_")[0] for each in blocks} == {"content_block"}


def test_the_engine_is_told_which_answers_ended_to_use_a_tool(server: Running) -> None:
    record = server.engine.record

    def told() -> list[int]:
        """Which answers to the request that came last."""
        return [answer for request, answer in record.tool_calls if request == max(record.submitted)]

    others: list[dict[str, Any]] = [{"tools": TOOLS, "max_tokens": 5}, {"tools": []}]
    for fields in others:  # cut off; no calls
        server.post(PATH, body("answer calls", **fields))
        assert told() == []
        events(server.post(PATH, body("answer calls", stream=True, **fields)))
        assert told() == []
    server.post(PATH, body("answer calls", tools=TOOLS))
    assert told() == [0]
    events(server.post(PATH, body("answer calls", tools=TOOLS, stream=True)))
    assert told() == [0]


def test_the_events_build_what_a_whole_answer_has(server: Running) -> None:
    whole = server.post(PATH, body("answer calls", tools=TOOLS)).json()
    Message.model_validate(whole, strict=True)
    built: list[Any] = []
    for each in events(server.post(PATH, body("answer calls", tools=TOOLS, stream=True))):
        if each["type"] == "content_block_start":
            built.append({**each["content_block"], "json": ""})
        elif each["type"] == "content_block_delta":
            delta = dict(each["delta"])
            del delta["type"]
            ((name, piece),) = delta.items()
            name = {"partial_json": "json"}.get(name, name)
            built[each["index"]][name] += piece
    for block in built:
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(text)
    for block in (*built, *whole["content"]):
        block.pop("id", None)
    assert built == whole["content"]
    assert [block["type"] for block in built] == ["thinking", "text", "tool_use", "tool_use"]


def test_what_only_looked_like_a_call_comes_at_the_end(server: Running) -> None:
    server.engine.text.replies["mark"] = ("Write <tool", "_call")
    found = events(server.post(PATH, body("answer mark", tools=TOOLS, stream=True)))
    pieces = [each["delta"]["text"] for each in found if each["type"] == "content_block_delta"]
    assert pieces[-1] == "<tool_call"
    assert "".join(pieces) == "Write <tool_call"
    whole = server.post(PATH, body("answer mark", tools=TOOLS)).json()["content"]
    assert whole == [{"type": "text", "text": "Write <tool_call"}]


def test_the_same_thoughts_have_the_same_signature(server: Running) -> None:
    first, second = (
        server.post(PATH, body("answer thinks")).json()["content"][0] for _ in range(2)
    )
    other = server.post(PATH, body("answer calls")).json()["content"][0]
    assert first == second
    assert first["signature"] != other["signature"]


def test_a_stream_in_which_nothing_comes_has_pings() -> None:
    settings = HttpSettings(ping_s=0.02)
    with running_server(settings=settings) as server:
        sent = json.dumps(body("queue", stream=True)).encode()
        with server.client.stream("POST", PATH, content=sent) as response:
            lines = response.iter_lines()
            for _ in range(2):
                assert next(lines) == "event: ping"
                assert json.loads(next(lines).removeprefix("data: ")) == {"type": "ping"}
                assert next(lines) == ""
            server.engine.release()
            rest = [line for line in lines if line.startswith("event: ") and "ping" not in line]
        assert rest[0] == "event: message_start"
        assert rest[-1] == "event: message_stop"


def test_an_engine_error_is_the_last_event(server: Running) -> None:
    response = server.post(PATH, body("stream will fail", stream=True))
    *_, last = events(response)
    assert last["error"]["type"] == "api_error"
    assert last["request_id"] == response.headers["request-id"]


def test_an_answer_that_the_servers_end_cuts_off_ends_with_an_error() -> None:
    with running_server() as server:
        sent = json.dumps(body("will hold", stream=True)).encode()
        with server.client.stream("POST", PATH, content=sent) as response:
            lines = response.iter_lines()
            assert next(lines) == "event: message_start"
            server.shutdown.begin()
            data = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert data[-1]["type"] == "error"
    assert data[-1]["error"]["type"] == "overloaded_error"
    assert "message_stop" not in {each["type"] for each in data}


@pytest.mark.parametrize("script", ["hold", "queue"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_hang_up_aborts_the_request(server: Running, stream: bool, script: str) -> None:
    record = server.engine.record
    prompt = f"hang up {stream} {script}"
    connection = server.send(PATH, body(prompt, stream=stream))
    record.wait_until(lambda: bool(record.ids_of(prompt)))
    (request_id,) = record.ids_of(prompt)
    assert request_id not in record.aborted
    connection.close()
    record.wait_until(lambda: request_id in record.aborted and request_id in record.ended)


def test_the_answers_tokens_are_remembered_for_the_next_turn(server: Running) -> None:
    remembered = server.engine.text.remembered
    remembered.clear()
    server.post(PATH, body("remember"))
    server.post(PATH, body("forget", cache_mode="none"))
    assert remembered == [[ord("H"), ord(","), ord("w"), ord("!")]]


def test_the_description_has_bodies_answers_and_events(server: Running) -> None:
    description = server.client.get("/openapi.json").json()
    schemas = description["components"]["schemas"]
    for path, name in ((PATH, "MessagesRequest"), (f"{PATH}/count_tokens", "CountRequest")):
        operation = description["paths"][path]["post"]
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        assert reference == f"#/components/schemas/{name}"
        assert all(field.get("description") for field in schemas[name]["properties"].values())
        assert {"400", "401", "404", "413", "429", "529"} <= set(operation["responses"])
    answers = description["paths"][PATH]["post"]["responses"]["200"]["content"]
    assert set(answers) == {"application/json", "text/event-stream"}
    kinds = schemas["MessageEvent"]["discriminator"]["mapping"]
    assert set(kinds) >= {"message_start", "content_block_delta", "ping", "error"}
    blocks = schemas["InputMessage"]["properties"]["content"]["anyOf"][1]["items"]
    assert set(blocks["discriminator"]["mapping"]) >= {"text", "tool_use", "tool_result"}
