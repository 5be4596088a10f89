"""An engine whose thread hangs in a step is told from one that works on a long prompt."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fastapi.testclient import TestClient

from radix_engine.model.batch import Span
from scheduler import Limits
from server import Engine
from server.http.app import create_app
from server.http.settings import HttpSettings
from tests.server.conftest import MakeEngine
from tests.server.prompts import greedy, ids

COMPLETIONS = "/v1/completions"
TIMEOUT_S = 20


@contextmanager
def client_of(engine: Engine, wedged_after_s: float) -> Iterator[TestClient]:
    app = create_app(engine, settings=HttpSettings(wedged_after_s=wedged_after_s))
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
        yield client


class Freezer:
    """A model's forward that blocks until it is released."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.release = threading.Event(), threading.Event()
        self._forward = engine._loop._steps._model.forward
        monkeypatch.setattr(engine._loop._steps._model, "forward", self.frozen_forward)

    def frozen_forward(self, spans: list[Span]) -> object:
        self.reached.set()
        assert self.release.wait(TIMEOUT_S)
        return self._forward(spans)


def test_a_frozen_engine_is_not_ready_in_time_and_gets_on_by_itself(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = make_engine()
    freezer = Freezer(engine, monkeypatch)
    body = {"prompt": ids(20, 1), "max_tokens": 2}
    answers: list[int] = []
    with client_of(engine, wedged_after_s=0.3) as client:
        asking = threading.Thread(
            target=lambda: answers.append(client.post(COMPLETIONS, json=body).status_code)
        )
        asking.start()
        assert freezer.reached.wait(TIMEOUT_S)
        frozen_at = time.monotonic()
        while (ready := client.get("/ready")).status_code == 200:
            assert time.monotonic() - frozen_at < 5
            time.sleep(0.01)
        assert ready.json()["status"] == "engine_wedged"
        assert time.monotonic() - frozen_at >= 0.29
        assert client.get("/health").status_code == 200
        began = time.monotonic()
        refused = client.post(COMPLETIONS, json=body)
        assert time.monotonic() - began < 1
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_wedged")
        while not (told := [r for r in caplog.records if r.levelname == "CRITICAL"]):
            assert time.monotonic() - frozen_at < 5
            time.sleep(0.01)
        assert "frozen_forward" in told[0].__dict__["fields"]["stack"]
        freezer.release.set()
        asking.join(TIMEOUT_S)
        assert answers == [200]
        assert client.get("/ready").status_code == 200
        assert client.post(COMPLETIONS, json=body).status_code == 200


def test_a_prompt_of_many_steps_is_no_reason_whatever_it_takes(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(limits=Limits(16, 4))
    model = engine._loop._steps._model
    forward, steps = model.forward, []

    def slow_forward(spans: list[Span]) -> object:
        steps.append(sum(len(span.tokens) for span in spans))
        time.sleep(0.03)
        return forward(spans)

    monkeypatch.setattr(model, "forward", slow_forward)
    statuses = set()
    body = {"prompt": ids(600, 1), "max_tokens": 1}
    with client_of(engine, wedged_after_s=0.5) as client:
        asking = threading.Thread(target=client.post, args=(COMPLETIONS,), kwargs={"json": body})
        began = time.monotonic()
        asking.start()
        while asking.is_alive():
            statuses.add(client.get("/ready").status_code)
            time.sleep(0.02)
        assert time.monotonic() - began > 2 * 0.5, "longer than the limit"
    assert max(steps) == 16
    assert statuses == {200}


def test_an_idle_engine_has_not_stalled(make_engine: MakeEngine) -> None:
    engine = make_engine()
    assert engine.stalled_s() == 0.0
    engine.generate([ids(20, 1)], greedy(2))
    engine.flush_cache()
    end = time.monotonic() + TIMEOUT_S
    while engine.stalled_s():  # it goes to sleep a moment after the answer
        assert time.monotonic() < end


def test_what_the_thread_does_can_be_looked_at_while_it_lives(make_engine: MakeEngine) -> None:
    engine = make_engine()
    assert "_serve" in engine.stack()
    engine.shutdown(0.0)
    assert engine.stack() == ""
