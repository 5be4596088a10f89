"""What the log says when the server ends."""

from __future__ import annotations

import logging

import pytest

from tests.server_http.running import running_server


def farewells(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if line.startswith("shutting down")]


def test_an_idle_server_speaks_of_no_requests(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), running_server(grace_s=3600.0) as server:
        server.stop()
    assert farewells(caplog) == ["shutting down"]


def test_a_busy_one_says_how_many_have_how_long(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), running_server(grace_s=0.5) as server:
        server.send("/v1/completions", {"prompt": ["a hold", "b hold"]})
        record = server.engine.record
        record.wait_until(lambda: len(record.submitted) == 2)
        server.stop()
    assert farewells(caplog) == ["shutting down; what runs (2) has 0.5 s to end"]
