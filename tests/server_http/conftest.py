"""Servers for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server_http.running import Running, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """One server for all tests of a module: what one test does must not break the next."""
    with running_server() as running:
        yield running
