"""GET /debug/requests: what happened to a request, and when."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fastapi.testclient import TestClient

from scheduler import Limits, Request, StepPlan
from scheduler.plan import ScheduledSpan
from server import Engine
from server.debug.lives import Lives
from server.http.debug.register import Register
from tests.server_http.real import COMPLETIONS, client_of, tiny_engine
from tests.server_http.running import Running, running_server


def test_a_requests_life_is_told_step_by_step(folder: Path) -> None:
    limits = Limits(max_step_tokens=32, max_running=4)
    with tiny_engine(folder, 64, limits) as engine, client_of(engine) as client:
        sent = {"prompt": list(range(50, 130)), "max_tokens": 3, "ignore_eos": True}
        before = time.time()
        response = client.post(
            COMPLETIONS, json=sent, headers={"X-Client-Request-Id": "mine", "X-Session-ID": "s"}
        )
        name = response.headers["X-Request-Id"]
        told = client.get(f"/debug/requests/{name}").json()
        assert client.get("/debug/requests/mine").json()["id"] == name
    assert [event["event"] for event in told["events"]] == [
        "arrived",
        "queued",
        "matched",
        "chunk",
        "chunk",
        "chunk",
        "first_token",
        "ended",
    ]
    chunks = [(e["start"], e["tokens"]) for e in told["events"] if e["event"] == "chunk"]
    assert chunks == [(0, 32), (32, 32), (64, 16)]
    times = [event["at_ms"] for event in told["events"]]
    assert times == sorted(times)
    assert times[0] == 0
    assert (told["prompt_tokens"], told["cached_tokens"], told["completion_tokens"]) == (80, 0, 3)
    assert (told["state"], told["status"], told["outcome"]) == ("ended", 200, "completed")
    assert (told["match_end"]["reason"], told["session"]) == ("cold", "s")
    assert before - 1 < told["started_at"] < time.time() + 1


def test_a_preemption_is_told(folder: Path) -> None:
    with tiny_engine(folder, 6) as engine, client_of(engine) as client:

        def post(first: int) -> str:
            sent = {"prompt": [first] * 30, "max_tokens": 40, "ignore_eos": True}
            name: str = client.post(COMPLETIONS, json=sent).headers["X-Request-Id"]
            return name

        with ThreadPoolExecutor(2) as pool:
            names = list(pool.map(post, (60, 70)))
        lives = [client.get(f"/debug/requests/{name}").json()["events"] for name in names]
    told = [[event["event"] for event in life] for life in lives]
    assert sum(life.count("preempted") for life in told) == engine.counters()["preemptions"] > 0


def test_a_refused_request_and_an_open_one_are_listed() -> None:
    with running_server() as server:
        server.post(COMPLETIONS, {"prompt": ""})
        server.send(COMPLETIONS, {"prompt": "hold", "max_tokens": 9})
        server.engine.record.wait_until(lambda: bool(server.engine.record.submitted))
        open_one, refused = server.client.get("/debug/requests").json()["data"]
        assert (open_one["state"], open_one["status"]) == ("open", None)
        assert (refused["state"], refused["status"], refused["outcome"]) == (
            "ended",
            400,
            "refused",
        )
        assert "prompt" in refused["error"]
        assert len(server.client.get("/debug/requests?limit=1").json()["data"]) == 1


def test_an_unknown_request_is_a_404(server: Running) -> None:
    response = server.client.get("/debug/requests/nobody")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "unknown_request"


def test_the_memory_curve_has_the_size_there_is(engine: Engine, client: TestClient) -> None:
    prompt = list(range(50, 114))
    for _ in range(2):
        client.post(COMPLETIONS, json={"prompt": prompt, "max_tokens": 1})
    told = client.get("/debug/memory-curve").json()
    sizes = [(point["multiple"], point["blocks"]) for point in told["points"]]
    assert sizes == [(0.25, 128), (0.5, 256), (1.0, 512), (2.0, 1024), (4.0, 2048)]
    # Two prompts of 64 tokens, of which the second was served three whole blocks.
    assert [point["hit_rate"] for point in told["points"]] == [48 / 128] * 5
    assert told["hit_rate"] == 63 / 128
    assert told["prompt_tokens"] == 128
    info = engine.info
    assert told["points"][2]["bytes"] == info.kv_tokens * info.kv_bytes_per_token


def test_lives_and_their_prompts_are_bounded(engine: Engine) -> None:
    lives = Lives(most=3, most_bytes=100)
    for number in range(5):
        request = Request(number, [1] * 10, 1)
        lives.planned(StepPlan((ScheduledSpan(request, 0, 10, True),)))
    assert len(lives) == 3
    known = [lives.get(number) for number in range(5)]
    assert [life is not None and len(life.run) for life in known] == [False, False, 0, 40, 40]


def test_the_register_forgets_the_oldest_that_have_ended() -> None:
    with running_server() as server:
        for _ in range(3):
            server.post(COMPLETIONS, {"prompt": "a"})
        assert len(server.client.get("/debug/requests").json()["data"]) == 3
    assert len(Register(most=2)) == 0
