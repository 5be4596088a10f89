"""The engine's public door, and the server around it.

``Engine`` takes prompts and yields tokens without HTTP; ``python -m server`` serves it.
"""

from radix_engine.model.sampling import SamplingParams
from server.engine import Engine
from server.errors import RequestRefused
from server.options import EngineOptions
from server.outputs import Completion, EngineInfo, GenerationParams, Output, Usage

__all__ = [
    "Completion",
    "Engine",
    "EngineInfo",
    "EngineOptions",
    "GenerationParams",
    "Output",
    "RequestRefused",
    "SamplingParams",
    "Usage",
]
