"""Under which names the served model may be asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from server.http.errors import ApiError

_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class ModelNames:
    """``served``: the model's own name, which answers tell. ``aliases``: others that the operator
    lets stand for it; in these, ``*`` is any characters."""

    served: str
    aliases: tuple[str, ...] = ()

    def include(self, name: str) -> bool:
        """Whether this name stands for the served model."""
        return name == self.served or any(_matches(alias, name) for alias in self.aliases)

    def check(self, name: str | None) -> None:
        """Raise ApiError 404 for another model's name; none is the served one's."""
        if name and not self.include(name):
            raise ApiError(
                404,
                f"This server serves {self.served!r}, not {name[:_SHOWN_CHARACTERS]!r}. Send that "
                "name as model, or start the server with --model-alias.",
                param="model",
                code="model_not_found",
            )


def _matches(alias: str, name: str) -> bool:
    pattern = ".*".join(map(re.escape, alias.split("*")))
    return re.fullmatch(pattern, name, re.DOTALL) is not None
