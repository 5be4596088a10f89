"""The server does as its own description says, whatever is sent: schemathesis draws the requests.

Bodies that fit the description may still be refused, since it does not say which fields go
together. But then the error names a field, and with another value there, or without it, the
request gets on; so in the end each is answered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from jsonschema import Draft202012Validator
from schemathesis import APIOperation, Case, GenerationMode, Response
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks

from scheduler import Limits
from tests.server_http.real import make_tiny_engine
from tests.server_http.running import Running, serving
from tests.tiny import make_tiny_folder

Operation = APIOperation[Any, Any, Any, Any]
AnyCase = Case[Any]

CHECKS: list[CheckFunction] = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
]
ENDLESS = "/debug/events"
SAID = "a text of more than sixteen tokens, surely"
PLAIN: dict[str, Any] = {
    "prompt": SAID,
    "messages": [{"role": "user", "content": SAID}],
    "max_tokens": 4,
    "tokens": [65],
}
MOST_MENDS = 12
TIMEOUT_S = 30


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with a real engine, whose answers are short."""
    folder = tmp_path_factory.mktemp("model")
    make_tiny_folder(folder, tokenizer=True, max_position_embeddings=128)
    with make_tiny_engine(folder, 24, Limits(64, 4)) as engine, serving(engine) as (url, _, _):
        yield url
        assert engine.audit() == []
        assert engine.state()["running"] == 0


def operations(url: str) -> list[Operation]:
    described = schemathesis.openapi.from_url(f"{url}/openapi.json")
    found = []
    for result in described.get_all_operations():
        assert isinstance(result, Ok), result
        found.append(result.ok())
    return [each for each in found if each.path != ENDLESS]


def each_case(
    operation: Operation, mode: GenerationMode, examples: int, check: Callable[[AnyCase], None]
) -> None:
    """Draw so many requests, the same in every run."""

    @settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def run(case: AnyCase) -> None:
        check(case)

    run()


def sent(case: AnyCase, also: list[CheckFunction]) -> Response:
    """The response, which is as the description says."""
    response = case.call(timeout=TIMEOUT_S)
    streams = response.headers.get("content-type", [""])[0].startswith("text/event-stream")
    if streams:  # schemathesis wants the events of OpenAPI 3.2
        check_events(case.operation, response)
    else:
        also = [*also, checks.response_schema_conformance]
    case.validate_response(response, checks=[*CHECKS, *also])
    return response


def check_events(operation: Operation, response: Response) -> None:
    described = operation.schema.raw_schema
    answer = described["paths"][operation.path]["post"]["responses"]["200"]
    validator = Draft202012Validator(
        {
            **answer["content"]["text/event-stream"]["schema"],
            "components": described["components"],
        }
    )
    events = re.findall(r"^data: (.*)$", response.content.decode("ascii"), re.MULTILINE)
    if events[-1] == "[DONE]":
        events.pop()
    assert events
    for event in events:
        validator.validate(json.loads(event))


def check_answered(case: AnyCase) -> None:
    """The request gets on, once all that is refused by name is mended."""
    if not isinstance(case.body, dict):
        sent(case, [])
        return
    body: dict[str, Any] = with_whole_numbers(case.body)
    if body.get("timeout_s") is not None:
        body["timeout_s"] = 60  # time that is over is a server's error
    for _ in range(MOST_MENDS):
        case.body = body
        response = sent(case, [])
        if response.status_code == 200:
            return
        body = mended(body, response.json()["error"])
    raise AssertionError(f"{response.text} to {body}")


def mended(body: dict[str, Any], error: dict[str, Any]) -> dict[str, Any]:
    """The body without what the error names; where that is needed, with a plain value."""
    details = error.get("details") or error  # Anthropic's errors have them one level down
    named = re.match(r"\w*", details.get("param") or error["message"])
    assert named is not None
    name = named[0]
    if name in PLAIN and body.get(name) != PLAIN[name]:
        return {**body, name: PLAIN[name]}
    less: dict[str, Any] = without(body, name)
    if less == body:  # these do not go together: "send one of messages, prompt, or request_id"
        assert "messages" in error["message"], error
        others = {key: body[key] for key in body if key not in ("prompt", "request_id")}
        return {**others, "messages": PLAIN["messages"]}
    return less


def without(value: Any, name: str) -> Any:
    """A JSON value without the fields of a name, wherever they are."""
    if isinstance(value, dict):
        return {key: without(each, name) for key, each in value.items() if key != name}
    return [without(each, name) for each in value] if isinstance(value, list) else value


def with_whole_numbers(value: Any) -> Any:
    """To a description 2.0 is an integer; the server is stricter."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: with_whole_numbers(each) for key, each in value.items()}
    return [with_whole_numbers(each) for each in value] if isinstance(value, list) else value


def takes_input(operation: Operation) -> bool:
    return bool(operation.body or operation.query)


@pytest.mark.slow
def test_what_fits_the_description_is_answered_or_refused_by_name(server: Running) -> None:
    for operation in operations(server.url):
        examples = 10 if operation.body else 3
        each_case(operation, GenerationMode.POSITIVE, examples, check_answered)


@pytest.mark.slow
def test_what_does_not_fit_the_description_is_refused(server: Running) -> None:
    def check_refused(case: AnyCase) -> None:
        sent(case, [checks.negative_data_rejection])

    for operation in operations(server.url):
        if takes_input(operation):
            each_case(operation, GenerationMode.NEGATIVE, 5, check_refused)


@pytest.mark.slow
def test_a_real_engine_answers_what_fits_the_description(real: str) -> None:
    for operation in operations(real):
        examples = 5 if operation.body else 1
        each_case(operation, GenerationMode.POSITIVE, examples, check_answered)
