"""The default model, real weights: what it is held to, it keeps to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from server import Engine, EngineOptions, GenerationParams, SamplingParams
from server.constraint import Constraint, one_of

pytestmark = pytest.mark.slow

GREEDY = SamplingParams(temperature=0.0)
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "city": {"type": "string"},
    },
    "required": ["name", "age", "city"],
    "additionalProperties": False,
}
SCHEMAS: list[tuple[dict[str, Any], str]] = [
    (PERSON, "As JSON: Anna Schmidt is 34 years old and lives in Hamburg."),
    ({"type": "object"}, "Describe a cat as a JSON object with name, colour and age."),
    (
        {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 4},
        "Give me a JSON list of fruits.",
    ),
    (
        {
            "type": "object",
            "properties": {
                "sentiment": {"enum": ["positive", "negative"]},
                "score": {"type": "number", "minimum": 0, "maximum": 1},
            },
            "required": ["sentiment", "score"],
            "additionalProperties": False,
        },
        "Classify as JSON: I loved this movie!",
    ),
]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load(EngineOptions()) as loaded:
        yield loaded


def prompt(engine: Engine, question: str) -> list[int]:
    return engine.text.render_chat([{"role": "user", "content": question}])


def ask(
    constraint: Constraint | None, max_tokens: int = 200, sampling: SamplingParams = GREEDY
) -> GenerationParams:
    return GenerationParams(max_tokens, sampling, constraint=constraint)


@pytest.mark.parametrize(("schema", "question"), SCHEMAS)
def test_every_answer_that_ends_is_json_of_its_schema(
    engine: Engine, schema: dict[str, Any], question: str
) -> None:
    constraint = Constraint("json_schema", json.dumps(schema))
    ended = 0
    for seed in range(4):
        sampling = SamplingParams(temperature=0.8, seed=seed) if seed else GREEDY
        (answer,) = engine.generate([prompt(engine, question)], ask(constraint, 200, sampling))
        assert answer.error is None
        if answer.finish_reason == "stop":
            ended += 1
            jsonschema.validate(json.loads(answer.text), schema)
    assert ended >= 2


def test_a_greedy_answer_that_is_of_its_form_anyway_is_the_same(engine: Engine) -> None:
    for question in ("Say hello.", "What is the capital of France?", "Count to five."):
        (free,) = engine.generate([prompt(engine, question)], ask(None, 60))
        (held,) = engine.generate(
            [prompt(engine, question)], ask(Constraint("regex", r"(?s:.*)"), 60)
        )
        (one,) = engine.generate([prompt(engine, question)], ask(one_of(["no", free.text]), 60))
        assert held.token_ids == free.token_ids
        assert one.text == free.text
        if free.finish_reason == "stop":
            assert one.token_ids == free.token_ids


def test_expressions_and_choices(engine: Engine) -> None:
    question = prompt(engine, "When is Christmas in 2024? Answer with a date.")
    (date,) = engine.generate([question], ask(Constraint("regex", r"[0-9]{4}-[0-9]{2}-[0-9]{2}")))
    assert re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", date.text)
    question = prompt(engine, "Is this positive or negative: I loved it!")
    (choice,) = engine.generate([question], ask(one_of(["negative", "positive"])))
    assert choice.text == "positive"
