"""The debug page: one HTML file, its modules and its style, from the package itself."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from fastapi import Request, Response

from server.http.errors import ApiError

# Nothing from elsewhere, no code or style inside the page, nobody may frame it.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


class Page:
    """The files, read once."""

    def __init__(self) -> None:
        folder = files("server.http.debug") / "static"
        self._files = {
            each.name: each.read_bytes()
            for each in folder.iterdir()
            if each.name.rpartition(".")[2] in _TYPES
        }

    @property
    def names(self) -> list[str]:
        """The files there are."""
        return sorted(self._files)

    def response(self, name: str, request: Request) -> Response:
        """One of them, or 304 where the browser has it. Raises ApiError 404."""
        data = self._files.get(name)
        if data is None:
            raise ApiError(
                404,
                f"There is no {name[:80]!r} of the debug page. The page is at /debug.",
                code="unknown_path",
            )
        tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        headers = {**_HEADERS, "ETag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        kind = _TYPES[name.rpartition(".")[2]]
        return Response(data, headers=headers, media_type=kind)
