"""Fields of OpenAI's API that promise something about the answer that this server does not keep.

A request that relies on one is refused by name rather than answered wrongly. The value that asks
for nothing special is accepted, since many clients send it. A field that is only a hint, or that
nobody here knows, is not listed: it is ignored, and named in the response.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from server.http.errors import ApiError

# Fields that another endpoint takes.
_ELSEWHERE = MappingProxyType(
    {
        **dict.fromkeys(
            ("best_of", "early_stopping", "echo", "length_penalty", "use_beam_search"),
            "/v1/completions",
        ),
        "tool_choice": "/v1/chat/completions",
        "top_logprobs": "/v1/chat/completions",
    }
)
# Field -> values that change nothing. null always does.
NEUTRAL: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "audio": (),
        "best_of": (1,),
        "early_stopping": (False,),
        "echo": (False,),
        "function_call": ("auto", "none"),
        "functions": ([],),
        "length_penalty": (1, 1.0),
        "modalities": (["text"],),
        "suffix": ("",),
        "tool_choice": ("auto", "none"),
        "top_logprobs": (0,),
        "use_beam_search": (False,),
        "web_search_options": (),
    }
)


def refuse_unsupported(fields: Mapping[str, Any]) -> None:
    """Raise ApiError 400 for the first field in ``fields`` that asks for what is not there."""
    for name, value in fields.items():
        neutral = NEUTRAL.get(name)
        if neutral is None or value is None or any(_same(value, each) for each in neutral):
            continue
        accepted = " or ".join(["null", *map(json.dumps, neutral)])
        elsewhere = _ELSEWHERE.get(name)
        where = f"here, only by {elsewhere}" if elsewhere else "by this server"
        raise ApiError(
            400,
            f"{name} is not supported {where}. Leave it out (or send {accepted}).",
            param=name,
            code="unsupported_parameter",
        )


def _same(value: object, neutral: object) -> bool:
    # False is not 0 here, nor true 1.
    return type(value) is type(neutral) and value == neutral
