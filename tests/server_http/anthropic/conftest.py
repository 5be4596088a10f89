"""A served engine for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server_http.anthropic.talking import Talk, make_folder, talking


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model."""
    return make_folder(tmp_path_factory.mktemp("anthropic") / "tiny")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Talk]:
    """One engine for all tests of a module."""
    with talking(folder) as talk:
        yield talk


@pytest.fixture
def talk(served: Talk) -> Talk:
    """It, with nothing in its cache."""
    served.flush()
    return served
