"""The engine without HTTP, over a tiny random model."""

from __future__ import annotations

import queue
import random
import threading
from typing import Any

import pytest
import torch

from radix_engine.model.batch import Span
from scheduler import Limits
from server import GenerationParams, Output, RequestRefused, SamplingParams
from server.text import Detokenizer
from tests.server.conftest import MakeEngine

GREEDY = SamplingParams(temperature=0.0)


def greedy(max_tokens: int = 8, stop: tuple[str, ...] = ()) -> GenerationParams:
    return GenerationParams(max_tokens=max_tokens, sampling=GREEDY, stop=stop)


def ids(count: int, seed: int) -> list[int]:
    return [4 + (seed + 7 * i) % 500 for i in range(count)]


def test_a_repeated_prompt_is_served_from_the_cache_with_the_same_answer(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    for length in (1, 15, 16, 17, 31, 32, 33, 100):
        prompt = ids(length, 1000 + length)
        cold, warm = (engine.generate([prompt], greedy())[0] for _ in range(2))
        assert cold.token_ids == warm.token_ids
        assert cold.usage.cached_tokens == 0
        assert warm.usage.cached_tokens == (length - 1) // 16 * 16


def test_generated_tokens_are_cached_too(make_engine: MakeEngine) -> None:
    engine = make_engine()
    prompt = ids(20, 1)
    first = engine.generate([prompt], greedy(30))[0]
    if first.finish_reason != "length":
        pytest.fail("the tiny model ended early: choose another prompt")
    follow_up = engine.generate([[*prompt, *first.token_ids, 5, 6, 7]], greedy(1))[0]
    assert follow_up.usage.cached_tokens == (20 + 30 - 1) // 16 * 16


def test_a_stream_and_a_whole_answer_are_the_same(make_engine: MakeEngine) -> None:
    engine = make_engine()
    whole = engine.generate(["the prefix"], greedy(20))[0]
    pieces = list(engine.stream("the prefix", greedy(20)))
    assert "".join(piece.text for piece in pieces) == whole.text
    assert tuple(token for piece in pieces for token in piece.token_ids) == whole.token_ids
    assert [piece.finish_reason for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert pieces[-1].finish_reason == whole.finish_reason
    assert pieces[-1].usage.completion_tokens == len(whole.token_ids)


def test_answers_of_a_batch_equal_those_computed_alone_under_memory_pressure(
    make_engine: MakeEngine,
) -> None:
    calm = make_engine(num_blocks=64, prefix_cache=False)
    tight = make_engine(num_blocks=9, limits=Limits(max_step_tokens=24, max_running=8))
    rng = random.Random(3)
    heads = [ids(n, n) for n in (16, 40, 48)]
    prompts = [
        [*rng.choice(heads), *ids(rng.randrange(1, 30), rng.randrange(500))] for _ in range(40)
    ]
    alone = [calm.generate([prompt], greedy(12))[0].token_ids for prompt in prompts]
    together = tight.generate(prompts, greedy(12))
    assert [answer.token_ids for answer in together] == alone
    counters = tight.counters()
    assert counters["evicted_blocks"] > 0
    assert counters["preemptions"] > 0
    assert counters["cached_tokens"] > 0
    sources = ("cached_tokens", "computed_tokens", "cached_late_tokens")
    assert sum(counters[source] for source in sources) == counters["prompt_tokens"]
    assert counters["prompt_tokens"] == sum(map(len, prompts))


def test_with_the_cache_off_nothing_is_read_or_stored(make_engine: MakeEngine) -> None:
    engine = make_engine(prefix_cache=False)
    for _ in range(2):
        assert engine.generate([ids(50, 1)], greedy())[0].usage.cached_tokens == 0
    assert engine.state()["blocks_cached"] == 0


def test_the_answer_ends_exactly_at_max_tokens_and_at_the_end_of_the_context(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(num_blocks=80)
    assert len(engine.generate([ids(10, 1)], greedy(5))[0].token_ids) == 5
    context = engine.info.context_length
    edge = engine.generate([ids(context - 3, 2)], greedy(50))[0]
    assert (len(edge.token_ids), edge.finish_reason) == (3, "length")


def test_the_answer_may_fill_the_whole_kv_memory(make_engine: MakeEngine) -> None:
    engine = make_engine(num_blocks=2)
    answer = engine.generate([ids(30, 1)], greedy(50))[0]
    assert (len(answer.token_ids), answer.finish_reason) == (3, "length")


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([], "empty"),
        (ids(1024, 1), "1024 tokens"),
        (ids(200, 1), "--kv-memory"),
        ([5, -1], "between 0 and 511"),
        ([5, 512], "between 0 and 511"),
    ],
)
def test_a_prompt_that_can_never_run_is_refused_at_once(
    make_engine: MakeEngine, prompt: list[int], words: str
) -> None:
    engine = make_engine(num_blocks=8)
    with pytest.raises(RequestRefused, match=words):
        engine.submit(prompt, greedy(), lambda _: None)
    assert engine.generate([ids(20, 1)], greedy(2))[0].finish_reason == "length"


def test_an_aborted_request_ends_once_and_gives_everything_back(make_engine: MakeEngine) -> None:
    engine = make_engine()
    outputs: queue.SimpleQueue[Output] = queue.SimpleQueue()
    request_id = engine.submit(ids(40, 1), greedy(900), outputs.put)
    assert outputs.get(timeout=20).finish_reason is None
    engine.abort(request_id)
    engine.abort(request_id)
    while (last := outputs.get(timeout=20)).finish_reason is None:
        pass
    assert last.finish_reason == "abort"
    assert engine.audit() == []
    assert engine.state()["running"] == 0
    assert outputs.empty()
    assert engine.counters()["requests_aborted"] == 1


def test_leaving_a_stream_early_aborts_it(make_engine: MakeEngine) -> None:
    engine = make_engine()
    stream = engine.stream(ids(10, 1), greedy(900))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    engine.audit()
    assert engine.counters()["requests_aborted"] == 1


def test_a_flush_leaves_running_requests_alone_and_new_ones_start_cold(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    expected = engine.generate([ids(40, 1)], greedy(60))[0].token_ids
    stream = engine.stream(ids(40, 1), greedy(60))
    tokens = [*next(stream).token_ids]
    engine.flush_cache()
    assert engine.tree()["cached_tokens"] == 0
    for piece in stream:
        tokens.extend(piece.token_ids)
    assert tuple(tokens) == expected
    assert engine.audit() == []
    assert engine.generate([ids(40, 1)], greedy(1))[0].usage.cached_tokens == 0


def test_a_stop_string_ends_the_text_before_it(make_engine: MakeEngine) -> None:
    engine = make_engine()
    whole = engine.generate(["hello"], greedy(30))[0].text
    middle = len(whole) // 2
    stop = whole[middle : middle + 3]
    answer = engine.generate(["hello"], greedy(30, (stop,)))[0]
    assert answer.text == whole[: whole.index(stop)]
    assert answer.finish_reason == "stop"


def test_a_seed_fixes_the_answer_whoever_shares_the_batch(make_engine: MakeEngine) -> None:
    engine = make_engine()
    seeded = GenerationParams(12, SamplingParams(temperature=1.0, seed=42))
    alone = engine.generate([ids(20, 1)], seeded)[0].token_ids
    batch = engine.generate([ids(20, 1), ids(20, 2), ids(33, 3)], seeded)
    assert batch[0].token_ids == alone
    free = GenerationParams(12, SamplingParams(temperature=1.0))
    several = {engine.generate([ids(20, 1)], free)[0].token_ids for _ in range(3)}
    assert len(several) > 1


def test_a_failing_step_ends_its_requests_and_the_engine_goes_on(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()

    def broken(_: object) -> None:
        raise ArithmeticError("boom")

    with monkeypatch.context() as patch:
        patch.setattr(engine._loop._model, "forward", broken)
        answer = engine.generate([ids(20, 1)], greedy())[0]
    assert (answer.finish_reason, answer.error) == ("error", "ArithmeticError: boom")
    assert engine.generate([ids(20, 1)], greedy(2))[0].finish_reason == "length"


@pytest.mark.parametrize("part", ["plan", "commit", "submit"])
def test_a_fault_in_the_scheduler_ends_requests_and_not_the_engine(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    engine = make_engine()

    def broken(*_: object) -> None:
        raise ArithmeticError("boom")

    with monkeypatch.context() as patch:
        patch.setattr(engine._scheduler, part, broken)
        answers = engine.generate([ids(20, 1), ids(20, 2)], greedy())
    assert {answer.finish_reason for answer in answers} == {"error"}
    assert engine.generate([ids(20, 1)], greedy(2))[0].finish_reason == "length"


def test_a_fault_in_one_requests_text_ends_that_one(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()

    class Broken(Detokenizer):
        def push(self, token: int) -> str:
            raise ArithmeticError("boom")

    with monkeypatch.context() as patch:
        patch.setattr("server.text.Detokenizer", Broken)
        answer = engine.generate(["hello"], greedy())[0]
    assert (answer.finish_reason, answer.error) == ("error", "ArithmeticError: boom")
    assert engine.generate([ids(20, 1)], greedy(2))[0].finish_reason == "length"


def test_a_receiver_that_raises_harms_nobody(make_engine: MakeEngine) -> None:
    engine = make_engine()
    ended = threading.Event()

    def broken(output: Output) -> None:
        if output.finish_reason is not None:
            ended.set()
        raise RuntimeError("receiver")

    engine.submit(ids(20, 1), greedy(900), broken)
    assert ended.wait(timeout=20)
    assert engine.counters()["generated_tokens"] == 1, "nobody wants the rest"
    assert engine.generate([ids(20, 1)], greedy(2))[0].finish_reason == "length"


def test_shutdown_lets_running_answers_end_and_refuses_new_ones(make_engine: MakeEngine) -> None:
    engine = make_engine()
    outputs: list[Output] = []
    engine.submit(ids(20, 1), greedy(10), outputs.append)
    engine.shutdown(grace_s=20.0)
    assert outputs[-1].finish_reason == "length"
    assert not engine.is_alive()
    with pytest.raises(RequestRefused, match="shutting down"):
        engine.submit(ids(20, 1), greedy(), outputs.append)


def test_shutdown_ends_what_does_not_end_in_time(make_engine: MakeEngine) -> None:
    engine = make_engine()
    outputs: list[Output] = []
    for seed in range(3):
        engine.submit(ids(20, seed), greedy(900), outputs.append)
    engine.shutdown(grace_s=0.0)
    assert sorted(o.finish_reason for o in outputs if o.finish_reason) == ["abort"] * 3


def test_the_tree_shows_text_locks_and_blocks(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.generate(["the cat sat on the mat and looked at the rat"], greedy(1))
    tree = engine.tree()
    nodes = tree["nodes"]
    assert isinstance(nodes, list)
    root, node = nodes
    assert (root["parent"], node["parent"]) == (None, 0)
    assert node["tokens"] == 16 * len(node["blocks"]) == tree["cached_tokens"]
    assert node["text"].startswith("the cat")
    assert node["locks"] == 0


def test_logits_that_are_no_numbers_end_only_their_own_request(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    expected = engine.generate([ids(20, 2)], greedy(4))[0].token_ids
    forward = engine._loop._model.forward

    def poisoned(spans: list[Span]) -> torch.Tensor:
        logits = forward(spans).clone()
        wanting = [span for span in spans if span.wants_logits]
        for row, span in enumerate(wanting):
            if span.start < 30 <= span.start + len(span.tokens):
                logits[row, 7] = float("nan")
        return logits

    monkeypatch.setattr(engine._loop._model, "forward", poisoned)
    params = GenerationParams(4, SamplingParams(temperature=1.0, top_p=0.9, seed=1))
    bad, good = engine.generate([ids(30, 1)], params)[0], engine.generate([ids(20, 2)], greedy(4))
    assert (bad.finish_reason, good[0].token_ids) == ("error", expected)
    together = engine.generate([ids(30, 1), ids(20, 2)], greedy(4))
    assert [answer.finish_reason for answer in together] == ["error", "length"]
    assert together[1].token_ids == expected


def test_a_request_whose_text_cannot_be_ended_does_not_end_the_engine(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()

    class Broken(Detokenizer):
        def flush(self) -> str:
            raise ArithmeticError("boom")

    outputs: queue.SimpleQueue[Output] = queue.SimpleQueue()
    with monkeypatch.context() as patch:
        patch.setattr("server.text.Detokenizer", Broken)
        request_id = engine.submit(ids(20, 1), greedy(900), outputs.put)
    outputs.get(timeout=20)
    engine.abort(request_id)
    while (last := outputs.get(timeout=20)).finish_reason is None:
        pass
    assert last.finish_reason == "error"
    assert engine.generate([ids(20, 1)], greedy(2))[0].finish_reason == "length"


def test_when_the_thread_itself_fails_everybody_is_told(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Panic(BaseException):
        pass

    both_submitted = threading.Event()

    def panic(_: object) -> None:
        assert both_submitted.wait(timeout=20)
        raise Panic("native code")

    engine = make_engine()
    monkeypatch.setattr(engine._loop._model, "forward", panic)
    outputs: list[Output] = []
    for seed in (1, 2):
        engine.submit(ids(20, seed), greedy(4), outputs.append)
    both_submitted.set()
    engine._loop._thread.join(timeout=20)
    assert [output.finish_reason for output in outputs] == ["error", "error"]
    assert not engine.is_alive()
    with pytest.raises(RequestRefused, match="the engine has failed"):
        engine.submit(ids(20, 1), greedy(), lambda _: None)
    with pytest.raises(RuntimeError, match="has ended"):
        engine.flush_cache()


def test_a_receiver_may_ask_the_engine_but_not_shut_it_down(make_engine: MakeEngine) -> None:
    engine = make_engine()
    seen: list[object] = []
    ended = threading.Event()

    def receiver(output: Output) -> None:
        if output.finish_reason is not None:
            seen.append(engine.audit())
            try:
                engine.shutdown(0.0)
            except RuntimeError as error:
                seen.append(str(error))
            ended.set()

    engine.submit(ids(20, 1), greedy(3), receiver)
    assert ended.wait(timeout=20)
    assert seen == [[], "the engine cannot be shut down from its own thread"]


def test_a_second_shutdown_does_not_leave_the_first_waiting(make_engine: MakeEngine) -> None:
    engine = make_engine()
    outputs: queue.SimpleQueue[Output] = queue.SimpleQueue()
    engine.submit(ids(20, 1), greedy(900), outputs.put)
    outputs.get(timeout=20)
    first = threading.Thread(target=engine.shutdown, args=(float("inf"),))
    first.start()
    engine.shutdown(0.0)
    first.join(timeout=20)
    assert not first.is_alive()


@pytest.mark.parametrize(
    "fields", [{"max_tokens": 0}, {"max_tokens": 2.5}, {"stop": "end"}, {"stop": ("",)}]
)
def test_generation_params_that_make_no_sense_name_the_field(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        GenerationParams(**fields)


def test_one_string_is_not_taken_for_many_prompts(make_engine: MakeEngine) -> None:
    with pytest.raises(TypeError, match="list"):
        make_engine().generate("hello")
