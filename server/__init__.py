"""The engine's public door, and the server around it.

``Engine`` takes prompts and yields tokens without HTTP; ``python -m server`` serves it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from radix_engine.model.sampling_params import SamplingParams
    from server.constraint import Constraint
    from server.engine import Engine
    from server.errors import RequestRefused
    from server.generation_params import GenerationParams
    from server.options import EngineOptions
    from server.outputs import Completion, EngineInfo, Output, Usage

_HOMES = {
    "Completion": "server.outputs",
    "Constraint": "server.constraint",
    "Engine": "server.engine",
    "EngineInfo": "server.outputs",
    "EngineOptions": "server.options",
    "GenerationParams": "server.generation_params",
    "Output": "server.outputs",
    "RequestRefused": "server.errors",
    "SamplingParams": "radix_engine.model.sampling_params",
    "Usage": "server.outputs",
}

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
    """Import each, and torch with the engine, only when it is asked for: ``--help`` needs none."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
