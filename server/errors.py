"""What a request can be refused with, before it is queued."""

from __future__ import annotations


class RequestRefused(Exception):
    """A request that cannot be served; nothing of it was queued.

    ``message`` names the field, the limit and the remedy; ``param`` is the field's name in the API;
    ``code`` is a stable word for programs; ``status`` is the HTTP status that fits (400, 429, 503).
    """

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str = "invalid_value",
        status: int = 400,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status
