"""JSON of looks into the engine, whose texts may be any."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from server.http.long_json import long_json

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def written(value: Mapping[str, Any]) -> bytes:
    """A dictionary as JSON, made beside other threads. A lone surrogate, which cannot be sent,
    comes out as a question mark."""
    return long_json(value, _encode).encode("utf-8", "replace")
