"""The engine's public door, and the server around it.

``Engine`` takes prompts and yields tokens without HTTP; ``python -m server`` serves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from radix_engine.model.sampling_params import SamplingParams
from server.constraint import Constraint
from server.errors import RequestRefused
from server.options import EngineOptions
from server.outputs import Completion, EngineInfo, GenerationParams, Output, Usage

if TYPE_CHECKING:
    from server.engine import Engine

__all__ = [
    "Completion",
    "Constraint",
    "Engine",
    "EngineInfo",
    "EngineOptions",
    "GenerationParams",
    "Output",
    "RequestRefused",
    "SamplingParams",
    "Usage",
]


def __getattr__(name: str) -> Any:
    """Import ``Engine``, and torch with it, only when it is asked for: ``--help`` needs neither."""
    if name == "Engine":
        from server.engine import Engine

        return Engine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
