"""Before any endpoint: who asks, and whether this path is for them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from server.http.access import Access
from server.http.errors import ApiError, ErrorForm
from server.logs import fields

logger = logging.getLogger("server.http")

_METHODS = "GET, POST, DELETE, OPTIONS"


class Gate:
    """Lets nothing pass that ``access`` refuses, and notes the caller for the endpoints
    (`caller_of`). ``form_of``: in which form a path tells errors. ``on_refused`` is called with the
    code of each refusal.

    OPTIONS is answered here, to anybody: a browser asks without a key what it may send.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        form_of: Callable[[str], ErrorForm],
        on_refused: Callable[[str | None], None],
    ) -> None:
        self._app = app
        self._access = access
        self._form_of = form_of
        self._on_refused = on_refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._answer(scope)
        await (answer or self._app)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response | None:
        """What is answered here; None where the endpoint has to."""
        if scope["method"] == "OPTIONS":
            return Response(status_code=204, headers={"Allow": _METHODS})
        path, client = scope["path"], scope.get("client")
        address = client[0] if client else None
        try:
            caller = self._access.admit(path, Headers(scope=scope), address)
        except ApiError as error:
            line = fields(status=error.status, code=error.code, endpoint=path, client=address)
            logger.info("refused at the gate", extra=line)
            self._on_refused(error.code)
            return self._form_of(path)(error, None)
        scope.setdefault("state", {})["caller"] = caller
        return None
