"""Paths that are not there, and methods that they do not take."""

from __future__ import annotations

import pytest

from server.http.schemas import ErrorBody
from tests.server_http.running import Running


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/", "/debug"),
        ("/docs", None),
        ("/v1/responses", None),
        ("/v1/complete", "/v1/completions"),
        ("/v1/models/", "/v1/models"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/" + "x" * 5000, None),
    ],
)
def test_an_unknown_path_is_a_404_that_names_the_nearest_and_where_all_are(
    server: Running, path: str, meant: str | None
) -> None:
    response = server.client.get(path)
    error = ErrorBody.model_validate_json(response.content, strict=True).error
    assert response.status_code == 404
    assert (error.type, error.code) == ("invalid_request_error", "unknown_path")
    told = f" Did you mean {meant}?" if meant else ""
    shown = f"There is no {path[:100]} here.{told} GET /openapi.json lists all that there is."
    assert error.message == shown
    assert server.client.get("/openapi.json").status_code == 200


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/completions"), ("DELETE", "/health"), ("GET", "/flush_cache")]
)
def test_a_wrong_method_is_a_405_that_names_the_right_one(
    server: Running, method: str, path: str
) -> None:
    response = server.client.request(method, path)
    error = ErrorBody.model_validate_json(response.content, strict=True).error
    assert response.status_code == 405
    assert response.headers["allow"] in error.message
