"""Answers that keep to a schema, an expression or a grammar, in the engine."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from scheduler import Limits
from server import Completion, Engine, GenerationParams, RequestRefused, SamplingParams
from server.constrained.matcher import Matcher
from server.constraint import Constraint, one_of
from tests.server.conftest import MakeEngine
from tests.server.forcing import force
from tests.server.prompts import ids
from tests.tiny import IM_END

GREEDY = SamplingParams(temperature=0.0)
RANDOM = SamplingParams(temperature=1.0, seed=42)
ANY_TEXT = Constraint("regex", r"(?s:.*)")

SCHEMAS: list[dict[str, Any]] = [
    {"type": "boolean"},
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 4},
    {"enum": ["red", "green", {"blue": 1}]},
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 6},
            "age": {"type": "integer", "minimum": 18, "maximum": 120},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 2},
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": False,
    },
    {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[a-f]{2,5}$"}]},
    {
        "$ref": "#/$defs/pair",
        "$defs": {
            "pair": {
                "type": "object",
                "properties": {"left": {"type": "boolean"}, "right": {"const": 7}},
                "required": ["left", "right"],
                "additionalProperties": False,
            }
        },
    },
]


def of_schema(schema: dict[str, Any]) -> Constraint:
    return Constraint("json_schema", json.dumps(schema))


def ask(
    constraint: Constraint | None,
    max_tokens: int = 200,
    sampling: SamplingParams = RANDOM,
    **fields: Any,
) -> GenerationParams:
    return GenerationParams(max_tokens, sampling, constraint=constraint, **fields)


def tokens_of(answers: list[Completion]) -> list[tuple[int, ...]]:
    return [answer.token_ids for answer in answers]


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("sampling", [GREEDY, RANDOM, SamplingParams(seed=1, top_k=5, top_p=0.8)])
def test_an_answer_to_a_schema_is_valid_json(
    make_engine: MakeEngine, schema: dict[str, Any], sampling: SamplingParams
) -> None:
    engine = make_engine()
    prompts = [ids(12, seed) for seed in range(4)]
    answers = engine.generate(prompts, ask(of_schema(schema), 300, sampling))
    for answer in answers:
        assert answer.error is None
        assert answer.stop_reason is None
        if answer.finish_reason == "stop":
            assert answer.token_ids[-1] == IM_END
            jsonschema.validate(json.loads(answer.text), schema)
    assert any(answer.finish_reason == "stop" for answer in answers)


@pytest.mark.parametrize(
    "pattern", [r"[0-9]{3}-[0-9]{4}", r"(yes|no)!{0,3}", r"\w{5,9}", "caf\u00e9( \U0001f600){2}"]
)
def test_an_answer_to_an_expression_matches_all_of_it(
    make_engine: MakeEngine, pattern: str
) -> None:
    engine = make_engine()
    prompts = [ids(12, seed) for seed in range(4)]
    for answer in engine.generate(prompts, ask(Constraint("regex", pattern))):
        assert answer.finish_reason == "stop"
        assert re.fullmatch(pattern, answer.text)


def test_an_answer_is_one_of_the_choices(make_engine: MakeEngine) -> None:
    engine = make_engine()
    choices = ["yes", "no", 'may"be\n', "\U0001f600"]
    prompts = [ids(12, seed) for seed in range(12)]
    answers = engine.generate(prompts, ask(one_of(choices), sampling=SamplingParams(seed=2)))
    assert {answer.text for answer in answers} <= set(choices)
    assert len({answer.text for answer in answers}) > 1


def test_an_answer_that_is_cut_is_a_beginning(make_engine: MakeEngine) -> None:
    engine = make_engine()
    (whole,) = engine.generate([ids(12, 1)], ask(Constraint("regex", "(ab){40}")))
    (cut,) = engine.generate([ids(12, 1)], ask(Constraint("regex", "(ab){40}"), 7))
    assert whole.text == "ab" * 40
    assert (cut.finish_reason, len(cut.token_ids)) == ("length", 7)
    assert cut.text
    assert whole.text.startswith(cut.text)


def test_a_greedy_answer_that_keeps_to_it_anyway_is_the_same(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    text = '{"the": [1, 2.5, "x\\n"],\n  "other": null}'
    said = [*engine.text.encode(text), IM_END]
    force(engine, monkeypatch, 12, said)
    for constraint in (
        None,
        of_schema({"type": "object"}),
        of_schema({"type": "object", "required": ["the"], "properties": {"the": {}}}),
        ANY_TEXT,
        one_of(["no", text]),
    ):
        (answer,) = engine.generate([ids(12, 1)], ask(constraint, sampling=GREEDY))
        assert (answer.token_ids, answer.text) == (tuple(said), text)


def test_a_seed_fixes_the_answer_whoever_shares_the_batch_and_none_of_these_changes(
    make_engine: MakeEngine,
) -> None:
    engine, other = make_engine(256), make_engine(256)
    prompts = [ids(14, seed) for seed in range(6)]
    mixed: list[GenerationParams] = [
        ask(of_schema(SCHEMAS[3]), 60),
        ask(None, 30),
        ask(ANY_TEXT, 30),
        ask(None, 30, GREEDY),
        ask(one_of(["yes", "no"]), 30, SamplingParams(seed=3, top_p=0.5)),
        ask(None, 30, SamplingParams(seed=4, top_k=7, presence_penalty=1.0)),
    ]
    alone = [
        other.generate([prompt], params)[0] for prompt, params in zip(prompts, mixed, strict=True)
    ]
    streams = [engine.stream(*each) for each in zip(prompts, mixed, strict=True)]
    found: list[list[int]] = [[] for _ in streams]
    running = dict(enumerate(streams))
    while running:
        for index, stream in list(running.items()):
            piece = next(stream, None)
            if piece is None:
                del running[index]
            else:
                found[index] += piece.token_ids
    assert [tuple(tokens) for tokens in found] == tokens_of(alone)


def test_streamed_is_whole(make_engine: MakeEngine) -> None:
    engine = make_engine()
    params = ask(of_schema(SCHEMAS[3]))
    (whole,) = engine.generate([ids(12, 1)], params)
    pieces = list(engine.stream(ids(12, 1), params))
    assert "".join(piece.text for piece in pieces) == whole.text
    assert not any("\ufffd" in piece.text for piece in pieces)


def test_each_of_several_answers_goes_its_own_way(make_engine: MakeEngine) -> None:
    engine = make_engine()
    params = ask(of_schema(SCHEMAS[3]), n=5)
    answers = engine.generate([ids(40, 1)], params)
    for answer in answers:
        if answer.finish_reason == "stop":
            jsonschema.validate(json.loads(answer.text), SCHEMAS[3])
    assert len({answer.text for answer in answers}) == 5
    assert engine.counters()["computed_tokens"] == 40
    (first,) = engine.generate([ids(40, 1)], ask(of_schema(SCHEMAS[3])))
    assert first.token_ids == answers[0].token_ids


def test_preemptions_and_chunks_take_no_token_twice(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    take = Matcher.take

    def noting(self: Matcher, token: int) -> None:
        taken.append(token)
        take(self, token)

    monkeypatch.setattr(Matcher, "take", noting)
    calm, tight = make_engine(), make_engine(8, limits=Limits(max_step_tokens=16, max_running=6))
    prompts = [ids(40, seed) for seed in range(6)]
    params = ask(Constraint("regex", "[a-z ]{50,60}"), 70)
    expected = calm.generate(prompts, params)
    count = len(taken)
    answers = tight.generate(prompts, params)
    assert tight.counters()["preemptions"] > 0
    assert tokens_of(answers) == tokens_of(expected)
    assert count == len(taken) - count == sum(len(each.token_ids) for each in answers)


def test_a_stop_string_ends_it_in_the_midst(make_engine: MakeEngine) -> None:
    engine = make_engine()
    constraint = one_of(["alpha beta gamma"])
    (answer,) = engine.generate([ids(12, 1)], ask(constraint, stop=("a g", "beta")))
    assert (answer.text, answer.stop_reason) == ("alpha ", "beta")


def test_log_probabilities_stay_the_models_own(make_engine: MakeEngine) -> None:
    engine = make_engine()
    sampling = SamplingParams(temperature=1.0, top_k=1)
    params = ask(one_of(["the end"]), 20, sampling, logprobs=5, prompt_logprobs=5)
    (answer,) = engine.generate([ids(12, 1)], params)
    assert answer.text == "the end"
    assert answer.logprobs is not None
    first = answer.logprobs[0]
    (free,) = engine.generate([ids(12, 1)], replace(params, constraint=None))
    assert free.logprobs is not None
    assert first.top == free.logprobs[0].top, "most of these may not come"
    assert all(each.logprob > -9999 for each in answer.logprobs)
    json.dumps(answer.logprobs, allow_nan=False)


def test_min_tokens_make_an_answer_longer_where_it_can_be(make_engine: MakeEngine) -> None:
    engine = make_engine()
    (answer,) = engine.generate([ids(12, 1)], ask(Constraint("regex", "a*"), 40, min_tokens=30))
    assert len(answer.token_ids) >= 30
    assert IM_END not in answer.token_ids[:30]
    (short,) = engine.generate([ids(12, 1)], ask(one_of(["no"]), 40, min_tokens=30))
    assert (short.text, short.finish_reason) == ("no", "stop"), "nothing else is left to say"


def test_one_that_can_be_kept_to_no_further_ends_its_answer_alone(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    constraint = Constraint("regex", "[a-z]{20}", "guided_regex")
    doomed = ask(constraint, 50)
    expected = engine.generate([ids(12, 2)], ask(ANY_TEXT, 20))
    allowed, calls = Matcher.allowed, []

    def failing(self: Matcher) -> Any:
        calls.append(self)
        if self is calls[0] and len([each for each in calls if each is self]) == 5:
            self._give_up("too many states")
        return allowed(self)

    monkeypatch.setattr(Matcher, "allowed", failing)
    stream = engine.stream(ids(12, 1), doomed)
    pieces = [next(stream)]
    others = engine.generate([ids(12, 2)], ask(ANY_TEXT, 20))
    pieces += stream
    assert tokens_of(others) == tokens_of(expected)
    assert pieces[-1].finish_reason == "error"
    assert pieces[-1].error == "the answer cannot follow its constraint: too many states"
    assert re.fullmatch("[a-z]*", "".join(piece.text for piece in pieces))
    with pytest.raises(RequestRefused, match=r"guided_regex cannot be used: too many states"):
        engine.generate([ids(12, 1)], doomed)


def test_a_constraint_that_cannot_be_used_is_refused_before_anything_is_queued(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    with pytest.raises(RequestRefused, match="unclosed group") as caught:
        engine.generate([ids(12, 1)] * 2, ask(Constraint("regex", "(", "structured_outputs.regex")))
    assert caught.value.param == "structured_outputs.regex"
    assert engine.counters()["prompt_tokens"] == 0


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"use_beam_search": True, "sampling": GREEDY}, "constraint must be None with beam"),
        ({"ignore_eos": True}, "ignore_eos must be False with a constraint"),
    ],
)
def test_what_does_not_go_with_a_constraint_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ask(ANY_TEXT, **fields)


def test_the_process_that_tries_grammars_ends_with_the_engine(make_engine: MakeEngine) -> None:
    engine: Engine = make_engine()
    engine.generate([ids(12, 1)], ask(ANY_TEXT, 2))
    trial = engine._intake._grammars._trial
    assert trial is not None
    assert trial._process is not None
    assert trial._process.poll() is None
    engine.shutdown(grace_s=0.0)
    assert trial._process.returncode == 0
