"""The engine without HTTP, over a tiny random model."""

from __future__ import annotations

import json
import queue
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduler import Limits
from server import Engine, GenerationParams, Output, RequestRefused, SamplingParams
from server.text import TextCodec
from tests.server.conftest import KINDS, MakeEngine, served
from tests.server.prompts import greedy, ids
from tests.tiny import make_tiny_folder


def test_a_repeated_prompt_is_served_from_the_cache_with_the_same_answer(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    for length in (1, 15, 16, 17, 31, 32, 33, 100):
        prompt = ids(length, 1000 + length)
        cold, warm = (engine.generate([prompt], greedy())[0] for _ in range(2))
        assert cold.token_ids == warm.token_ids
        assert cold.usage.cached_tokens == 0
        stored = (length + len(cold.token_ids) - 1) // 16 * 16
        assert warm.usage.cached_tokens == min(length - 1, stored)


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


def test_an_answer_goes_on_past_the_end_of_the_text_where_that_is_asked_for(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    plain = make_engine().generate([ids(20, 1)], greedy(12))[0].token_ids
    # The same weights, but the text ends at the fifth of these tokens.
    folder = make_tiny_folder(tmp_path / "ends", tokenizer=True)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": plain[4]}))
    engine = make_engine(folder=folder)
    ended = engine.generate([ids(20, 1)], greedy(12))[0]
    assert ended.finish_reason == "stop"
    assert ended.token_ids == plain[: plain.index(plain[4]) + 1]
    params = replace(greedy(12), ignore_eos=True)
    whole = engine.generate([ids(20, 1)], params)[0]
    assert (whole.token_ids, whole.finish_reason) == (plain, "length")


def test_a_seed_fixes_the_answer_whoever_shares_the_batch(make_engine: MakeEngine) -> None:
    engine = make_engine()
    seeded = GenerationParams(12, SamplingParams(temperature=1.0, seed=42))
    alone = engine.generate([ids(20, 1)], seeded)[0].token_ids
    batch = engine.generate([ids(20, 1), ids(20, 2), ids(33, 3)], seeded)
    assert batch[0].token_ids == alone
    free = GenerationParams(12, SamplingParams(temperature=1.0))
    several = {engine.generate([ids(20, 1)], free)[0].token_ids for _ in range(3)}
    assert len(several) > 1


def test_the_tree_shows_text_locks_and_blocks(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.generate(["the cat sat on the mat and looked at the rat"], greedy(1))
    tree = engine.tree()
    nodes = tree["nodes"]
    assert isinstance(nodes, list)
    root, namespace, node = nodes
    assert (root["parent"], namespace["parent"], node["parent"]) == (None, 0, 1)
    assert namespace["namespace"] == {
        "tenant": None,
        "salted": False,
        "adapter": None,
        "weights": 0,
    }
    assert (namespace["tokens"], node["ghost_tokens"], node["namespace"]) == (0, 0, None)
    assert node["tokens"] == 16 * len(node["blocks"]) == tree["cached_tokens"]
    assert node["text"].startswith("the cat")
    assert node["locks"] == 0


@pytest.mark.parametrize(
    "fields", [{"max_tokens": -1}, {"max_tokens": 2.5}, {"stop": "end"}, {"stop": ("",)}]
)
def test_generation_params_that_make_no_sense_name_the_field(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        GenerationParams(**fields)


def test_one_string_is_not_taken_for_many_prompts(make_engine: MakeEngine) -> None:
    with pytest.raises(TypeError, match="list"):
        make_engine().generate("hello")


def test_a_step_is_as_large_as_suits_the_models_kernels(
    tiny_folder: Path, make_engine: MakeEngine
) -> None:
    for kind in KINDS:
        model = served(tiny_folder, kind)
        assert model.step_tokens == (512 if kind.bf16 else 256)
        with Engine(model, TextCodec(tiny_folder), 8) as engine:
            assert engine.info.limits.max_step_tokens == model.step_tokens
        with Engine(model, TextCodec(tiny_folder), 8, limits=Limits(max_step_tokens=64)) as engine:
            assert engine.info.limits.max_step_tokens == 64
    assert make_engine(limits=Limits(max_running=300)).info.limits.max_step_tokens == 300
