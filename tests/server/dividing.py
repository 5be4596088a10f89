"""Options and threads of engines whose model is divided among processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from server import EngineOptions


def options(**fields: Any) -> EngineOptions:
    usual: dict[str, Any] = {"dtype": "fp32", "threads": 2, "tensor_parallel": 2}
    return EngineOptions(**(usual | fields))


@contextmanager
def threads_kept() -> Iterator[None]:
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
