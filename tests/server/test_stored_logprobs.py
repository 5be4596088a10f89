"""Log-probabilities of prompts out of the cache: the very values that are found cold."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from radix_engine.cache import CacheMode, Reason
from radix_engine.cpu.processor import KernelKind
from radix_engine.model.batch import Span
from radix_engine.model.logprobs import FLOOR
from scheduler import Limits
from server import Completion, Engine, GenerationParams
from tests.server.conftest import KINDS, MakeEngine
from tests.server.prompts import GREEDY, greedy, ids

P = 16
TOLERANCE = 1e-4  # of the torch path, whose sums depend on what is computed together

ON_BOTH = pytest.mark.parametrize(
    "kind", [None, *KINDS[:1]], ids=lambda kind: kind.name if kind else "torch"
)


def scored(max_tokens: int = 0, top: int = 0, **fields: Any) -> GenerationParams:
    return GenerationParams(max_tokens, GREEDY, prompt_logprobs=top, **fields)


def score(engine: Engine, prompt: list[int], params: GenerationParams | None = None) -> Completion:
    (answer,) = engine.generate([prompt], params or scored())
    return answer


def values(answer: Completion) -> list[float]:
    """All but the first, which is None; as many as the prompt has tokens."""
    entries = answer.prompt_logprobs
    assert entries is not None
    assert (entries[0], len(entries)) == (None, answer.usage.prompt_tokens)
    known = [entry for entry in entries[1:] if entry is not None]
    assert len(known) == len(entries) - 1
    return [entry.logprob for entry in known]


def assert_same(engine: Engine, ours: list[float], theirs: list[float]) -> None:
    assert ours == (theirs if engine.info.exact else pytest.approx(theirs, abs=TOLERANCE))


@ON_BOTH
@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize("length", [1, P - 1, P, P + 1, 63, 64, 65, 257])
def test_a_warm_prompt_is_served_and_has_the_cold_ones_values(
    make_engine: MakeEngine, length: int, partial: bool, kind: KernelKind | None
) -> None:
    engine = make_engine(128, partial_blocks=partial, kind=kind)
    cold, warm = score(engine, ids(length, 1)), score(engine, ids(length, 1))
    assert_same(engine, values(warm), values(cold))
    stored = length // P * P
    served = max(0, stored - 1) if partial else max(0, stored - 1) // P * P
    assert [each.usage.cached_tokens for each in (cold, warm)] == [0, served]
    if served:  # the value of the first token after the cached ones is among the stored
        boundary = warm.prompt_logprobs, cold.prompt_logprobs
        assert boundary[0] is not None
        assert boundary[1] is not None
        assert boundary[0][served] == boundary[1][served]
    tokens = [entry and entry.token for entry in warm.prompt_logprobs or ()]
    assert tokens == [None, *ids(length, 1)[1:]]


@ON_BOTH
@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize("common", [1, P - 1, P, P + 1, 40, 48, 63])
def test_a_prompt_that_leaves_the_cached_one_has_the_values_that_it_has_alone(
    make_engine: MakeEngine, common: int, partial: bool, kind: KernelKind | None
) -> None:
    engine = make_engine(partial_blocks=partial, kind=kind)
    oracle = make_engine(prefix_cache=False, kind=kind)
    score(engine, ids(64, 1))
    prompt = [*ids(64, 1)[:common], *ids(30, 9)]
    answer = score(engine, prompt)
    assert_same(engine, values(answer), values(score(oracle, prompt)))
    # The first token that differs needs the logits after the one before it.
    most = common - 1 if partial else (common - 1) // P * P
    assert answer.usage.cached_tokens == most
    if partial:
        end = answer.usage.match_end
        assert end is not None
        assert (end.reason, end.position) == (Reason.BYPASSED, most)


def test_what_was_stored_without_values_is_computed_and_has_them_afterwards(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    engine.generate([ids(64, 1)], greedy(1))
    first, second = score(engine, ids(64, 1)), score(engine, ids(64, 1))
    assert [first.usage.cached_tokens, second.usage.cached_tokens] == [0, 63]
    assert values(first) == values(second)


def test_the_likeliest_tokens_are_not_stored_and_the_prompts_own_are(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    with_top = [score(engine, ids(64, 1), scored(top=top)) for top in (5, 1)]
    assert [each.usage.cached_tokens for each in with_top] == [0, 0]
    for each in with_top:
        assert each.usage.match_end is not None
        assert each.usage.match_end.reason is Reason.BYPASSED
    alone = score(engine, ids(64, 1))
    assert alone.usage.cached_tokens == 63
    assert values(alone) == values(with_top[0])
    assert [entry and entry.top for entry in alone.prompt_logprobs or ()] == [None, *[()] * 63]


@pytest.mark.parametrize("options", [{"index": "hash"}, {"prefix_cache": False}])
def test_without_a_tree_all_is_computed(make_engine: MakeEngine, options: dict[str, Any]) -> None:
    engine = make_engine(**options)
    answers = [score(engine, ids(64, 1)) for _ in range(2)]
    assert [each.usage.cached_tokens for each in answers] == [0, 0]
    assert_same(engine, values(answers[0]), values(answers[1]))


def test_a_read_only_request_is_served_values_and_adds_none(make_engine: MakeEngine) -> None:
    engine = make_engine()
    reading = scored(cache_mode=CacheMode.READ_ONLY)
    engine.generate([ids(64, 1)], greedy(1))
    assert [score(engine, ids(64, 1), reading).usage.cached_tokens for _ in range(2)] == [0, 0]
    score(engine, ids(64, 1))
    assert score(engine, ids(64, 1), reading).usage.cached_tokens == 63


@ON_BOTH
def test_many_at_once_in_chunks_that_share_prefixes_have_their_own_values(
    make_engine: MakeEngine, kind: KernelKind | None
) -> None:
    engine = make_engine(limits=Limits(max_step_tokens=24, max_running=6), kind=kind)
    oracle = make_engine(prefix_cache=False, kind=kind)
    head = ids(40, 1)
    prompts = [[*head[: 10 * part], *ids(25, seed)] for part in (2, 3, 4) for seed in (5, 6)]
    prompts += [head, [*head, 7], head]
    expected = [values(score(oracle, prompt)) for prompt in prompts]
    for _ in range(2):  # some of it cached, then all
        for answer, right in zip(engine.generate(prompts, scored()), expected, strict=True):
            assert_same(engine, values(answer), right)
    assert engine.audit() == []


@ON_BOTH
def test_preemptions_change_no_value(make_engine: MakeEngine, kind: KernelKind | None) -> None:
    tight = make_engine(8, limits=Limits(max_step_tokens=16, max_running=6), kind=kind)
    oracle = make_engine(prefix_cache=False, kind=kind)
    prompts = [[*ids(18, 1), *ids(6, seed)] for seed in range(6)]
    answers = tight.generate(prompts, scored(60))
    assert tight.counters()["preemptions"] >= 2
    for answer, prompt in zip(answers, prompts, strict=True):
        assert_same(tight, values(answer), values(score(oracle, prompt)))


@ON_BOTH
def test_the_values_of_answers_are_stored_for_the_next_turn(
    make_engine: MakeEngine, kind: KernelKind | None
) -> None:
    engine = make_engine(kind=kind)
    asked = scored(40, logprobs=0, n=2)
    answers = engine.generate([ids(30, 1)], asked)
    for answer in answers:
        assert answer.logprobs is not None
        told = [*values(answer), *(entry.logprob for entry in answer.logprobs)]
        turn = [*ids(30, 1), *answer.token_ids, *ids(3, 5)]
        later = score(engine, turn)
        assert later.usage.cached_tokens == 63, "the last of 70 tokens was not computed"
        assert_same(engine, values(later)[: len(told)], told)


def test_answers_without_log_probabilities_leave_none_for_the_next_turn(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    answer = score(engine, ids(30, 1), scored(40))
    later = score(engine, [*ids(30, 1), *answer.token_ids])
    assert later.usage.cached_tokens == 29


def test_a_stream_brings_the_stored_values_with_its_first_piece(make_engine: MakeEngine) -> None:
    engine = make_engine()
    cold = score(engine, ids(50, 1))
    first, *rest = engine.stream(ids(50, 1), scored(4))
    assert first.usage.cached_tokens == 47
    assert first.prompt_logprobs is not None
    assert "entries" not in vars(first.prompt_logprobs), "the engine's thread makes none"
    assert list(first.prompt_logprobs[:48]) == list(cold.prompt_logprobs or ())[:48]
    assert all(piece.prompt_logprobs is None for piece in rest)


def test_floors_come_back_as_they_were(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    model = engine._loop._steps._model
    forward = model.forward

    def steep(spans: list[Span]) -> torch.Tensor:
        logits = torch.full_like(forward(spans), -1e30)
        logits[:, 11] = 1e30
        return logits

    monkeypatch.setattr(model, "forward", steep)
    prompt = [11, 11, *ids(30, 1)]
    for cached in (0, 31):
        answer = score(engine, prompt)
        assert answer.usage.cached_tokens == cached
        assert values(answer) == [0.0] + [0.0 if t == 11 else FLOOR for t in prompt[2:]]
