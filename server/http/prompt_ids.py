"""A prompt that is a text or token ids, where no engine looks at the ids before they are used."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

MOST_ID = 2**31 - 1
"""What the cache's token runs can hold; which ids a model has is far less."""


def _possible(value: object) -> object:
    for index, token in enumerate(value if isinstance(value, list) else ()):
        if isinstance(token, int) and not 0 <= token <= MOST_ID:
            raise ValueError(
                f"prompt[{index}] is {repr(token)[:60]}; token ids are whole numbers from 0 to "
                f"{MOST_ID}."
            )
    return value


_Id = Annotated[int, WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MOST_ID})]
TextOrIds = Annotated[str | list[_Id] | None, BeforeValidator(_possible)]
