"""Keys over HTTP: refusals in the endpoint's form, whose prefixes are whose, and web pages."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.http import Shutdown, serve
from server.http.schemas import ErrorBody
from server.http.settings import HttpSettings
from server.key_ring import KeyRing
from tests.server_http.keys import ACME, BETA, OPERATOR, bearer, ring, write_keys
from tests.server_http.running import Running, running_server
from tests.server_http.scripted import TIMEOUT_S, ScriptedEngine

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PAGE = "https://app.example"
USER = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    keys = ring(tmp_path_factory.mktemp("keys"))
    with running_server(settings=HttpSettings(keys=keys, cors_origins=(PAGE,))) as running:
        yield running


def params_of(server: Running, prompt: str) -> Any:
    (request_id,) = server.engine.record.ids_of(prompt)
    return server.engine.record.submitted[request_id][1]


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_without_a_key_it_is_a_401_and_nothing_runs(server: Running, path: str) -> None:
    before = len(server.engine.record.submitted)
    response = server.post(path, {"prompt": "x", "messages": USER})
    error = ErrorBody.model_validate_json(response.content, strict=True).error
    assert response.status_code == 401
    assert (error.type, error.code) == ("invalid_request_error", "invalid_api_key")
    assert response.headers["www-authenticate"] == 'Bearer realm="radix-engine"'
    assert len(server.engine.record.submitted) == before


@pytest.mark.parametrize("headers", [bearer(ACME), {"x-api-key": ACME}])
def test_with_a_key_it_is_answered(server: Running, headers: dict[str, str]) -> None:
    assert server.post(COMPLETIONS, {"prompt": "keyed"}, headers).status_code == 200
    assert server.client.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/server_info", "/debug/tree", "/metrics", "/no/such/path"])
def test_what_operators_look_at_is_a_403_for_tenants(server: Running, path: str) -> None:
    response = server.client.get(path, headers=bearer(ACME))
    error = ErrorBody.model_validate_json(response.content, strict=True).error
    assert (response.status_code, error.code) == (403, "operators_only")
    assert server.client.get(path).status_code == 401
    expected = 404 if path.startswith("/no") else 200
    assert server.client.get(path, headers=bearer(OPERATOR)).status_code == expected


def test_only_an_operator_empties_the_cache(server: Running) -> None:
    assert server.client.post("/flush_cache", headers=bearer(BETA)).status_code == 403
    assert server.client.post("/flush_cache", headers=bearer(OPERATOR)).status_code == 200


def test_every_path_says_who_it_is_for(server: Running) -> None:
    paths = server.client.get("/openapi.json", headers=bearer(ACME)).json()["paths"]
    for path, methods in paths.items():
        for method in methods:
            url = path.replace("{name}", "x").replace("{id}", "x")
            answer = server.client.request(method, url)
            expected = {"/health": 200, "/ready": 200, "/debug": 200, "/debug/static/x": 404}
            assert answer.status_code == expected.get(url, 401), path


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_probes_need_no_key(server: Running, path: str) -> None:
    assert server.client.get(path).status_code == 200


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_nothing_in_a_body_makes_another_tenant(server: Running, path: str) -> None:
    others = {"tenant": "beta", "namespace": "beta", "user": "beta", "metadata": {"tenant": "beta"}}
    prompt = f"whose {path}"
    body = {"prompt": prompt, "messages": [{"role": "user", "content": prompt}], **others}
    headers = {**bearer(ACME), "X-Tenant": "beta"}
    assert server.post(path, body, headers).status_code == 200
    assert params_of(server, prompt).namespace.tenant == "acme"


def test_a_salt_divides_a_tenants_prefixes_and_never_leaves_them(server: Running) -> None:
    for name, key in (("acme", ACME), ("beta", BETA)):
        body = {"prompt": f"salted {name}", "cache_salt": "the same"}
        assert server.post(COMPLETIONS, body, bearer(key)).status_code == 200
    one, other = (params_of(server, f"salted {name}").namespace for name in ("acme", "beta"))
    assert (one.tenant, one.salt) == ("acme", "the same")
    assert (other.tenant, other.salt) == ("beta", "the same")
    assert one != other


def test_an_operators_requests_are_of_no_tenant(server: Running) -> None:
    assert server.post(COMPLETIONS, {"prompt": "mine"}, bearer(OPERATOR)).status_code == 200
    assert params_of(server, "mine").namespace.tenant is None


def preflight(server: Running, origin: str, **more: str) -> httpx.Response:
    return server.client.options(COMPLETIONS, headers={"Origin": origin, **more})


def test_a_page_may_ask_without_a_key_what_it_may_send(server: Running) -> None:
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-api-key,x-session-id",
    }
    response = preflight(server, PAGE, **asked)
    assert response.status_code == 200
    allowed = response.headers
    assert allowed["access-control-allow-origin"] == PAGE
    assert "POST" in allowed["access-control-allow-methods"]
    assert "x-session-id" in allowed["access-control-allow-headers"]
    plain = preflight(server, PAGE)
    assert plain.status_code == 204
    assert plain.headers["access-control-allow-origin"] == PAGE
    assert "POST" in plain.headers["allow"]


def test_a_page_reads_also_that_it_needs_a_key(server: Running) -> None:
    response = server.post(COMPLETIONS, {"prompt": "x"}, {"Origin": PAGE})
    assert response.status_code == 401
    assert response.headers["access-control-allow-origin"] == PAGE
    answer = server.post(COMPLETIONS, {"prompt": "x"}, {"Origin": PAGE, **bearer(ACME)})
    assert answer.status_code == 200
    shown = answer.headers["access-control-expose-headers"]
    assert {"X-Request-Id", "Retry-After", "X-Ignored-Fields"} <= set(shown.split(", "))
    broken = server.post(COMPLETIONS, {"prompt": "crash"}, {"Origin": PAGE, **bearer(ACME)})
    assert broken.status_code == 500
    assert broken.headers["access-control-allow-origin"] == PAGE


def test_a_page_of_another_origin_reads_nothing(server: Running) -> None:
    asked = {"Access-Control-Request-Method": "POST"}
    assert preflight(server, "https://evil.example", **asked).status_code == 400
    answer = server.post(COMPLETIONS, {"prompt": "x"}, {"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_without_the_option_pages_read_nothing() -> None:
    with running_server() as server:
        response = server.client.options(COMPLETIONS, headers={"Origin": PAGE})
        assert "access-control-allow-origin" not in response.headers
        answer = server.post(COMPLETIONS, {"prompt": "x"}, {"Origin": PAGE})
        assert "access-control-allow-origin" not in answer.headers


def test_all_pages_may_be_let_in() -> None:
    with running_server(settings=HttpSettings(cors_origins=("*",))) as server:
        answer = server.post(COMPLETIONS, {"prompt": "x"}, {"Origin": "https://any.example"})
        assert answer.headers["access-control-allow-origin"] == "*"
        flushed = server.client.post("/flush_cache", headers={"Origin": "https://any.example"})
        assert flushed.status_code == 403


def test_a_new_key_counts_and_an_old_one_does_not_while_its_request_goes_on(
    tmp_path: Path,
) -> None:
    keys = ring(tmp_path)
    with running_server(settings=HttpSettings(keys=keys)) as server:
        connection = server.send(COMPLETIONS, {"prompt": "long hold", "stream": True}, bearer(ACME))
        record = server.engine.record
        record.wait_until(lambda: bool(record.ids_of("long hold")))
        text = write_keys(tmp_path / "keys.toml").read_text()
        (tmp_path / "keys.toml").write_text(text.replace(ACME, "n" * 32))
        keys.reload()
        assert server.post(COMPLETIONS, {"prompt": "x"}, bearer(ACME)).status_code == 401
        assert server.post(COMPLETIONS, {"prompt": "x"}, bearer("n" * 32)).status_code == 200
        assert record.aborted == []
        server.engine.release()
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
            if b"[DONE]" in received:
                break
        assert b'"finish_reason":"stop"' in received


def test_sighup_has_the_keys_read_again_and_ends_nothing(tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.toml")
    keys = KeyRing(path, now=lambda: 0.0)  # so that it never looks by itself
    shutdown = Shutdown()
    statuses: list[int] = []

    def change_and_ask(url: str) -> None:
        def ask(key: str) -> int:
            return httpx.get(url + "/v1/models", headers=bearer(key), timeout=TIMEOUT_S).status_code

        try:
            statuses.append(ask(ACME))
            path.write_text(path.read_text().replace(ACME, "n" * 32))
            statuses.append(ask(ACME))
            os.kill(os.getpid(), signal.SIGHUP)
            for _ in range(1000):  # a signal is taken a moment later
                if ask(ACME) == 401:
                    break
            statuses.append(ask("n" * 32))
        finally:
            shutdown.begin()

    threads: list[threading.Thread] = []

    def on_ready(url: str) -> None:
        threads.append(threading.Thread(target=change_and_ask, args=(url,)))
        threads[0].start()

    settings = HttpSettings(keys=keys)
    serve(ScriptedEngine(), "127.0.0.1", 0, 0.0, on_ready, shutdown=shutdown, settings=settings)
    threads[0].join(TIMEOUT_S)
    assert statuses == [200, 200, 200]
    assert keys.keys.holder_of(ACME) is None


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ({"X-Request-Id": "mine-7"}, "mine-7"),
        ({"X-Client-Request-Id": "a", "X-Request-Id": "b"}, "a"),
        ({"X-Request-Id": "x" * 129}, None),
        ({"X-Request-Id": "two words"}, None),
        ({}, None),
    ],
)
def test_a_clients_own_id_comes_back_beside_the_servers(
    server: Running, sent: dict[str, str], shown: str | None
) -> None:
    for body in ({"prompt": "id"}, {"prompt": ""}):
        answer = server.post(COMPLETIONS, body, {**bearer(ACME), **sent})
        assert answer.headers.get("x-client-request-id") == shown
        assert answer.headers["x-request-id"].startswith("cmpl-")
