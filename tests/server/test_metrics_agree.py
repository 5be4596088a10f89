"""What /metrics counts is what the responses said: each request once, however often it started."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from radix_engine.model.batch import Span
from scheduler import Limits
from server import Engine
from server.http.app import create_app
from tests.server.conftest import MakeEngine
from tests.server.prompts import ids

COMPLETIONS = "/v1/completions"
TIMEOUT_S = 20
Metrics = Callable[..., float]


@contextmanager
def client_of(engine: Engine) -> Iterator[TestClient]:
    app = create_app(engine)
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
        yield client


def metrics_of(client: TestClient) -> Metrics:
    """The value of a sample by its name and labels; 0 where there is none."""
    text = client.get("/metrics").text
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    found = {(each.name, frozenset(each.labels.items())): each.value for each in samples}
    return lambda name, **labels: found.get((f"radix_{name}", frozenset(labels.items())), 0.0)


def answered(client: TestClient, bodies: list[Any], together: int = 1) -> list[Any]:
    with ThreadPoolExecutor(together) as pool:
        return list(pool.map(lambda body: client.post(COMPLETIONS, json=body), bodies))


def usages(responses: list[Any]) -> list[dict[str, Any]]:
    return [each.json()["usage"] for each in responses if each.status_code == 200]


def test_sums_over_responses_are_the_counters_with_preemptions_and_refusals(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(num_blocks=24, limits=Limits(64, 8))
    answer = {"max_tokens": 60, "ignore_eos": True, "temperature": 0}
    bodies: list[Any] = [{"prompt": ids(40 + seed, seed), **answer} for seed in range(8)]
    bodies += [{"prompt": ids(40 + seed, seed), **answer, "n": 2} for seed in range(4)]
    bad: list[Any] = [
        *({"prompt": ids(500, seed)} for seed in range(7)),
        {"prompt": ids(2000, 1)},
        *({"prompt": "x", "temperature": -1} for _ in range(12)),
    ]
    with client_of(engine) as client:
        responses = answered(client, bodies + bad, together=8)
        assert Counter(each.status_code for each in responses) == {200: 12, 400: 20}
        metrics = metrics_of(client)
    assert metrics("preemptions_total") > 0
    told = usages(responses)
    cached = sum(each["prompt_tokens_details"]["cached_tokens"] for each in told)
    prompts = sum(each["prompt_tokens"] for each in told)
    assert prompts == sum(len(body["prompt"]) for body in bodies)
    assert metrics("prompt_tokens_total") == prompts
    assert metrics("cached_tokens_total") == cached
    assert metrics("generated_tokens_total") == sum(each["completion_tokens"] for each in told)
    assert metrics("generated_tokens_total") == (8 + 4 * 2) * 60
    computed = metrics("computed_tokens_total") + metrics("cached_late_tokens_total")
    assert computed == prompts - cached
    ends = Counter(each["prompt_tokens_details"]["match_end"]["reason"] for each in told)
    for reason, count in ends.items():
        assert metrics("match_ends_total", reason=reason) == count
        missed = sum(
            each["prompt_tokens"] - each["prompt_tokens_details"]["cached_tokens"]
            for each in told
            if each["prompt_tokens_details"]["match_end"]["reason"] == reason
        )
        assert metrics("missed_tokens_total", reason=reason) == missed
    assert sum(ends.values()) == len(told)
    codes = Counter(each.json()["error"]["code"] for each in responses if each.status_code != 200)
    assert codes == {"context_length_exceeded": 8, "invalid_value": 12}
    for code, count in codes.items():
        assert metrics("refusals_total", code=code) == count
    assert metrics("request_prompt_tokens_sum") == prompts
    assert metrics("request_completion_tokens_sum") == metrics("generated_tokens_total")
    assert metrics("request_seconds_count") == metrics("queue_seconds_count") == 12
    first = [metrics("time_to_first_token_seconds_count", cache=each) for each in ("hit", "miss")]
    hits = sum(each["prompt_tokens_details"]["cached_tokens"] > 0 for each in told)
    assert first == [hits, 12 - hits]


def test_prompts_that_share_nothing_hit_nothing_however_often_they_are_preempted(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(num_blocks=16, limits=Limits(64, 8))
    answer = {"max_tokens": 60, "ignore_eos": True}
    bodies = [{"prompt": ids(40, seed), **answer} for seed in range(8)]
    with client_of(engine) as client:
        assert len(usages(answered(client, bodies, together=8))) == 8
        metrics = metrics_of(client)
    assert metrics("preemptions_total") > 0
    assert metrics("prompt_tokens_total") == 8 * 40
    assert metrics("cached_tokens_total") == 0
    assert metrics("match_ends_total", reason="cold") == 8
    assert metrics("missed_tokens_total", reason="cold") == 8 * 40


def test_blocks_by_state_are_all_blocks_and_tokens_follow_from_them(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(num_blocks=24)
    with client_of(engine) as client:
        answered(client, [{"prompt": ids(40, 1), "max_tokens": 9, "ignore_eos": True}])
        metrics = metrics_of(client)
    states = ("free", "private", "in_flight", "cached", "quarantined")
    blocks = {state: metrics("kv_blocks", state=state) for state in states}
    # 40 tokens and 8 of the answer are stored; the last one has no K and V.
    assert blocks == {"free": 21, "private": 0, "in_flight": 0, "cached": 3, "quarantined": 0}
    assert metrics("evictable_blocks") == 3
    assert metrics("kv_capacity_tokens") == 24 * 16
    assert metrics("kv_used_tokens") == 3 * 16
    assert metrics("kv_capacity_bytes") == 24 * 16 * engine.info.kv_bytes_per_token
    assert metrics("lru_hit_ratio", memory="1") == 0


def test_the_server_says_how_many_run_and_wait(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(limits=Limits(64, 1))
    model, go_on = engine._loop._steps._model, threading.Event()
    forward = model.forward

    def held_forward(spans: list[Span]) -> object:
        assert go_on.wait(TIMEOUT_S)
        return forward(spans)

    monkeypatch.setattr(model, "forward", held_forward)
    bodies = [{"prompt": ids(9, seed), "max_tokens": 1} for seed in range(3)]
    counts, end = (0.0, 0.0), time.monotonic() + TIMEOUT_S
    with client_of(engine) as client, ThreadPoolExecutor(1) as pool:
        answers = pool.submit(answered, client, bodies, 3)
        while counts != (1, 2) and time.monotonic() < end:
            metrics = metrics_of(client)
            counts = metrics("running_requests"), metrics("waiting_requests")
        go_on.set()
        assert [each.status_code for each in answers.result(TIMEOUT_S)] == [200] * 3
        metrics = metrics_of(client)
    assert counts == (1, 2)
    assert (metrics("running_requests"), metrics("waiting_requests")) == (0, 0)
    assert metrics("open_requests") == 0


def test_repeated_prompts_are_counted_as_hits(make_engine: MakeEngine) -> None:
    engine = make_engine(num_blocks=64)
    body = {"prompt": ids(49, 1), "max_tokens": 1, "ignore_eos": True}
    with client_of(engine) as client:
        told = usages(answered(client, [body] * 3))
        metrics = metrics_of(client)
    cached = [each["prompt_tokens_details"]["cached_tokens"] for each in told]
    assert cached == [0, 48, 48]
    assert metrics("cached_tokens_total") == 96
    assert metrics("match_ends_total", reason="full") == 2
    assert metrics("lru_hit_ratio", memory="1") == 96 / (3 * 49)
