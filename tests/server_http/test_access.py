"""Who may ask for what: by key, and without keys by where a request comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.http.access import Access
from server.http.caller import Caller
from server.http.errors import ApiError
from tests.server_http.keys import ACME, BETA, OPERATOR, ring

TENANTS = ("/v1/completions", "/v1/chat/completions", "/v1/models", "/v1/models/x", "/tokenize")
OPERATORS = ("/metrics", "/debug/tree", "/flush_cache", "/server_info", "/anything/new")
ANYBODYS = ("/health", "/ready")
HERE, AWAY = "127.0.0.1", "192.0.2.7"


def refused(access: Access, path: str, headers: dict[str, str], client: str | None) -> ApiError:
    with pytest.raises(ApiError) as error:
        access.admit(path, headers, client)
    return error.value


@pytest.fixture
def keyed(tmp_path: Path) -> Access:
    return Access(ring(tmp_path))


@pytest.mark.parametrize(
    ("headers", "caller"),
    [
        ({"authorization": f"Bearer {ACME}"}, Caller("acme")),
        ({"authorization": f"bearer  {BETA} "}, Caller("beta")),
        ({"x-api-key": ACME}, Caller("acme")),
        ({"authorization": f"Bearer {OPERATOR}"}, Caller(None, is_operator=True)),
        ({"authorization": f"Basic {BETA}", "x-api-key": ACME}, Caller("acme")),
        ({"authorization": "Bearer unknown", "x-api-key": ACME}, Caller("acme")),
        ({"authorization": f"Bearer {BETA}", "x-api-key": ACME}, Caller("beta")),
    ],
)
@pytest.mark.parametrize("client", [HERE, AWAY, None])
def test_a_key_says_who_calls_from_anywhere(
    keyed: Access, headers: dict[str, str], caller: Caller, client: str | None
) -> None:
    for path in TENANTS:
        assert keyed.admit(path, headers, client) == caller


@pytest.mark.parametrize("path", [*TENANTS, *OPERATORS])
@pytest.mark.parametrize("client", [HERE, AWAY])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {ACME[:-1]}"},
        {"authorization": ACME},
        {"x-api-key": "none"},
    ],
)
def test_without_a_known_key_it_is_a_401_that_says_how_to_send_one(
    keyed: Access, path: str, client: str, headers: dict[str, str]
) -> None:
    error = refused(keyed, path, headers, client)
    assert (error.status, error.code) == (401, "invalid_api_key")
    assert error.headers["WWW-Authenticate"].startswith('Bearer realm="radix-engine"')
    assert "Authorization: Bearer" in error.message
    assert "x-api-key" in error.message
    assert ACME[:-1] not in error.message


@pytest.mark.parametrize("path", OPERATORS)
def test_what_is_for_operators_needs_an_operators_key(keyed: Access, path: str) -> None:
    error = refused(keyed, path, {"x-api-key": ACME}, HERE)
    assert (error.status, error.code) == (403, "operators_only")
    assert "operator = true" in error.message
    assert keyed.admit(path, {"x-api-key": OPERATOR}, AWAY) == Caller(None, is_operator=True)


@pytest.mark.parametrize("path", ANYBODYS)
def test_probes_need_no_key(keyed: Access, path: str) -> None:
    for access in (keyed, Access()):
        assert access.admit(path, {}, AWAY) == Caller()


@pytest.mark.parametrize("client", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize(
    "host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000", ""]
)
def test_without_keys_everything_is_open_to_the_machine_itself(client: str, host: str) -> None:
    for path in (*TENANTS, *OPERATORS):
        assert Access().admit(path, {"host": host}, client) == Caller(None, is_operator=True)


@pytest.mark.parametrize(
    "client", [AWAY, "10.0.0.1", "fe80::1%eth0", "::ffff:192.0.2.7", None, "x"]
)
def test_without_keys_others_may_generate_and_no_more(client: str | None) -> None:
    for path in TENANTS:
        assert Access().admit(path, {"host": "127.0.0.1"}, client) == Caller()
    for path in OPERATORS:
        error = refused(Access(), path, {"host": "127.0.0.1"}, client)
        assert (error.status, error.code) == (403, "operators_only")
        assert "--api-key-file" in error.message


@pytest.mark.parametrize("name", ["forwarded", "x-forwarded-for", "x-real-ip"])
def test_what_a_proxy_passes_on_is_not_the_machine_itself(name: str) -> None:
    headers = {"host": "127.0.0.1", name: "127.0.0.1"}
    assert "--api-key-file" in refused(Access(), "/debug/tree", headers, HERE).message
    assert Access().admit("/v1/models", headers, HERE) == Caller()


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "::1",
    ],
)
def test_a_name_that_a_page_makes_point_here_is_refused(host: str) -> None:
    error = refused(Access(), "/debug/tree", {"host": host}, HERE)
    assert (error.status, error.code) == (403, "operators_only")
    assert "--host" in error.message
    assert Access().admit("/v1/models", {"host": host}, HERE) == Caller()


def test_the_name_that_it_listens_on_is_its_own() -> None:
    access = Access(hosts=("Box.example",))
    caller = access.admit("/debug/tree", {"host": "box.example.:8000"}, HERE)
    assert caller.is_operator
    assert refused(access, "/debug/tree", {"host": "evil.example"}, HERE).status == 403


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        ({"origin": "http://127.0.0.1:8000"}, True),
        ({"origin": "https://127.0.0.1:8000", "sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"origin": "https://app.example"}, True),  # named
        ({"origin": "https://app.example", "sec-fetch-site": "cross-site"}, True),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "http://127.0.0.1:9999"}, False),  # another server here
        ({"origin": "null"}, False),
        ({"origin": "http://["}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
    ],
)
def test_pages_of_other_origins_may_not_do_what_operators_may(
    headers: dict[str, str], is_own: bool
) -> None:
    access = Access(origins=("https://app.example", "*"))
    sent = {"host": "127.0.0.1:8000", **headers}
    if is_own:
        assert access.admit("/flush_cache", sent, HERE).is_operator
    else:
        assert "--cors-origin" in refused(access, "/flush_cache", sent, HERE).message
        assert access.admit("/v1/completions", sent, HERE) == Caller()


def test_an_operators_key_counts_whatever_the_host_and_origin(keyed: Access) -> None:
    headers = {"host": "evil.example", "origin": "http://evil.example", "x-api-key": OPERATOR}
    assert keyed.admit("/flush_cache", headers, AWAY).is_operator
