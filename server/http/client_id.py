"""The id that a client gives to its request: for its own records, never the server's id."""

from __future__ import annotations

import re
from collections.abc import Mapping

ECHO = "X-Client-Request-Id"

_SHOWABLE = re.compile(r"[\x21-\x7e]{1,128}")


def client_id(headers: Mapping[str, str]) -> str | None:
    """What a client calls its request, in X-Client-Request-Id or X-Request-Id; None where that is
    no short visible ASCII."""
    for name in (ECHO.lower(), "x-request-id"):
        found = headers.get(name, "")
        if _SHOWABLE.fullmatch(found):
            return found
    return None


def echoed(headers: Mapping[str, str]) -> dict[str, str]:
    """The answer's header that gives it back."""
    found = client_id(headers)
    return {} if found is None else {ECHO: found}
