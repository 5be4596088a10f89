"""Whether the process lives and whether it takes requests: told at once, and asked of nobody."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import pytest

from server.http.schemas import ErrorBody, Health, Ready
from server.http.settings import HttpSettings
from tests.server_http.running import Running, running_server
from tests.server_http.scripted import TIMEOUT_S

COMPLETIONS = "/v1/completions"
LIMIT_S = 0.1


@pytest.fixture
def watched() -> Iterator[Running]:
    """A server whose engine is taken for wedged after a tenth of a second."""
    with running_server(settings=HttpSettings(wedged_after_s=LIMIT_S)) as running:
        yield running


def health(server: Running) -> tuple[int, str]:
    response = server.client.get("/health")
    return response.status_code, Health.model_validate_json(response.content, strict=True).status


def ready(server: Running) -> tuple[int, str]:
    response = server.client.get("/ready")
    body = Ready.model_validate_json(response.content, strict=True)
    assert (body.reason is None) == (response.status_code == 200)
    return response.status_code, body.status


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def test_a_server_that_can_answer_lives_and_is_ready(server: Running) -> None:
    assert health(server) == (200, "ok")
    assert ready(server) == (200, "ready")


def test_probes_make_no_request(server: Running) -> None:
    before = len(server.engine.record.submitted)
    for path in ("/health", "/ready", "/metrics"):
        assert server.client.get(path).status_code == 200
    assert len(server.engine.record.submitted) == before


def test_a_dead_engine_needs_a_restart_and_refuses_at_once() -> None:
    with running_server() as server:
        server.engine.die()
        assert health(server) == (503, "engine_stopped")
        assert ready(server) == (503, "engine_stopped")
        for response in (
            server.post(COMPLETIONS, {"prompt": "x"}),
            server.client.get("/debug/tree"),
            server.client.post("/flush_cache"),
        ):
            error = ErrorBody.model_validate_json(response.content, strict=True).error
            assert (response.status_code, error.code) == (503, "engine_stopped")
            assert int(response.headers["retry-after"]) > 0
        assert server.client.get("/server_info").status_code == 200
        assert "radix_ready 0.0" in server.client.get("/metrics").text


def test_a_wedged_engine_is_not_ready_refuses_at_once_and_recovers_by_itself(
    watched: Running,
) -> None:
    watched.engine.stall_s = LIMIT_S + 31
    assert health(watched) == (200, "ok"), "it may get on again; nobody has to restart it"
    assert ready(watched) == (503, "engine_wedged")
    for response in (
        watched.post(COMPLETIONS, {"prompt": "x"}),
        watched.client.get("/debug/tree"),
        watched.client.post("/flush_cache"),
    ):
        error = ErrorBody.model_validate_json(response.content, strict=True).error
        assert (response.status_code, error.code) == (503, "engine_wedged")
        assert all(word in error.message for word in ("31 s", "0.1 s", "--wedged-after"))
        assert int(response.headers["retry-after"]) > 0
    text = watched.client.get("/metrics").text
    assert "radix_ready 0.0" in text
    assert "radix_stalled_seconds 31.1" in text
    watched.engine.stall_s = 0.0
    assert ready(watched) == (200, "ready")
    assert watched.post(COMPLETIONS, {"prompt": "x"}).status_code == 200


def test_a_step_within_the_limit_is_no_reason(watched: Running) -> None:
    watched.engine.stall_s = LIMIT_S - 0.01
    assert ready(watched) == (200, "ready")


def test_a_wedged_engine_is_told_once_with_what_its_thread_is_doing(
    watched: Running, caplog: pytest.LogCaptureFixture
) -> None:
    def lines(level: int) -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.levelno == level]

    with caplog.at_level(logging.INFO, logger="server.http"):
        watched.engine.stall_s = LIMIT_S + 1
        wait_until(lambda: bool(lines(logging.CRITICAL)))
        time.sleep(3 * LIMIT_S)
        (line,) = lines(logging.CRITICAL)
        assert "wedged" in line.getMessage()
        assert line.__dict__["fields"]["stack"] == watched.engine.stack()
        assert not lines(logging.WARNING)
        watched.engine.stall_s = 0.0
        wait_until(lambda: bool(lines(logging.WARNING)))
        watched.engine.stall_s = LIMIT_S + 1
        wait_until(lambda: len(lines(logging.CRITICAL)) == 2)
