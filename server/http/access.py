"""Who may do what: by key, or, where no keys are given out, by where a request comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from server.http.caller import ANYBODY, NOBODY, Caller
from server.http.errors import ApiError
from server.key_ring import KeyRing

# Paths that anybody may ask for, and those for tenants; all others are for operators.
OPEN_PATHS = ("/health", "/ready", "/debug")  # the page itself: it asks for a key
OPEN_FOLDERS = ("/debug/static/",)
TENANT_PATHS = ("/tokenize", "/detokenize", "/openapi.json")
TENANT_FOLDERS = ("/v1/",)

_NO_KEYS_YET = "start the server with --api-key-file, and send a key of it that has operator = true"


class Access:
    """Finds out who a caller is, and refuses what is not for them.

    ``keys`` None: no keys are given out. Then generating is open to whoever reaches the server, and
    what is for operators to its own machine (loopback). A page of the web in a browser there could
    use that, under a name that it makes point to this machine, or by sending requests to it
    blindly. So the Host must be a name of this machine, one of ``hosts`` (the server's --host), and
    the page's Origin the server's own, or one of ``origins``.
    """

    def __init__(
        self,
        keys: KeyRing | None = None,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
    ) -> None:
        self._keys = keys
        self._hosts = {host.lower() for host in hosts}
        self._origins = {origin.lower() for origin in origins}

    def admit(self, path: str, headers: Mapping[str, str], client_host: str | None) -> Caller:
        """The caller, who may use this path. Raises ApiError 401 or 403.

        ``headers``: names in lower case. ``client_host``: the address that the connection comes
        from.
        """
        if path in OPEN_PATHS or path.startswith(OPEN_FOLDERS):
            return NOBODY
        for_tenants = path in TENANT_PATHS or path.startswith(TENANT_FOLDERS)
        caller = self.caller(headers, client_host)
        if caller.is_operator or for_tenants:
            return caller
        if self._keys is not None:
            raise _forbidden(f"{path} is for operators: send a key that has operator = true.")
        raise _forbidden(f"{path} is for operators. {self._stranger(headers, client_host)}")

    def caller(self, headers: Mapping[str, str], client_host: str | None) -> Caller:
        """Who sends a request with these headers from this address. Raises ApiError 401."""
        if self._keys is None:
            return NOBODY if self._stranger(headers, client_host) else ANYBODY
        sent = _sent_keys(headers)
        for key in sent:
            holder = self._keys.keys.holder_of(key)
            if holder is not None:
                return Caller(holder.tenant, holder.is_operator)
        raise _unauthorized(is_wrong=bool(sent))

    def _stranger(self, headers: Mapping[str, str], client_host: str | None) -> str:
        """Why a request without keys is not its own machine's; empty where it is."""
        if not is_loopback(client_host) or _came_through_proxy(headers):
            return (
                f"Without keys it answers only to this machine itself, not to {client_host}: "
                f"use http://127.0.0.1 there, or {_NO_KEYS_YET}."
            )
        host = headers.get("host", "")
        name = _name_of(host)
        if host and name != "localhost" and name not in self._hosts and not is_loopback(name):
            return (
                f"The Host header names {host[:100]!r}, which is none of this machine's names "
                f"(localhost, 127.0.0.1, --host): use one of them, or {_NO_KEYS_YET}."
            )
        origin = headers.get("origin", "").lower()
        if origin in self._origins:
            return ""
        if (origin and _place_of(origin) != host.lower()) or headers.get(
            "sec-fetch-site", "none"
        ) not in ("none", "same-origin"):
            return (
                f"A page of another origin ({origin[:100] or 'unknown'}) asks for it: name that "
                f"with --cors-origin, or {_NO_KEYS_YET}."
            )
        return ""


def _sent_keys(headers: Mapping[str, str]) -> list[str]:
    """The keys that a client has sent, in OpenAI's way or in Anthropic's."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    keys = [bearer.strip()] if scheme.lower() == "bearer" else []
    return [key for key in (*keys, headers.get("x-api-key", "").strip()) if key]


def _name_of(host: str) -> str:
    """The name or address in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].removesuffix(".").lower()


def _place_of(origin: str) -> str | None:
    """Name and port of an origin, as a Host header has them; None where it has none."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def is_loopback(host: str | None) -> bool:
    """Whether an address is this machine's own, which others cannot reach. Names are not looked
    up."""
    try:
        address = ip_address(host or "")
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback


def _came_through_proxy(headers: Mapping[str, str]) -> bool:
    """Whether a proxy on this machine has passed the request on, from wherever."""
    return any(name in headers for name in ("forwarded", "x-forwarded-for", "x-real-ip"))


def _unauthorized(*, is_wrong: bool) -> ApiError:
    what = "The key is not one of this server's" if is_wrong else "This server needs a key"
    challenge = 'Bearer realm="radix-engine"'
    return ApiError(
        401,
        f"{what}: send one as 'Authorization: Bearer KEY' or 'x-api-key: KEY'. The operator gives "
        "them out.",
        code="invalid_api_key",
        headers={
            "WWW-Authenticate": challenge + (', error="invalid_token"' if is_wrong else ""),
        },
    )


def _forbidden(message: str) -> ApiError:
    return ApiError(403, message, code="operators_only")
