"""The kernels that run on this machine, compiled once a session."""

from __future__ import annotations

import pytest

from radix_engine.cpu.build import build
from radix_engine.cpu.library import Kernels
from radix_engine.cpu.processor import read_processor, usable_kinds

KINDS = usable_kinds(read_processor())


@pytest.fixture(scope="session", params=KINDS, ids=[kind.name for kind in KINDS])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """Each kind of kernels that this processor runs."""
    return Kernels(build(request.param), request.param)
