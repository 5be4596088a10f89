"""What holds for all tests; and, at the end, how many FlashInfer calls of our code the real package
would have taken, whichever of several processes of pytest-xdist they were made in."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

_CALLS = "flashinfer_calls"
_COUNTED = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Nothing is counted yet."""
    config.stash[_COUNTED] = Counter()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Count those of this process, or hand them to the one that started it."""
    binding = sys.modules.get("tests.gpu.binding")
    if binding is None:
        return
    session.config.stash[_COUNTED].update(binding.EXECUTED)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_CALLS] = dict(binding.EXECUTED)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add those of another process, which has ended."""
    node.config.stash[_COUNTED].update(getattr(node, "workeroutput", {}).get(_CALLS, {}))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """One line, where any were made."""
    counted = config.stash[_COUNTED]
    if counted:
        by_name = ", ".join(f"{name} {count:,}" for name, count in sorted(counted.items()))
        terminalreporter.write_line(
            f"{counted.total():,} FlashInfer calls were bound to the real package's signatures "
            f"and executed by the fake: {by_name}"
        )


@pytest.fixture(autouse=True)
def _log_handlers_as_before() -> Iterator[None]:
    """A test that sets logging up leaves no handler behind that writes to its own closed stream."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    for handler in root.handlers[:]:
        if type(handler) is logging.StreamHandler and handler not in before:
            root.removeHandler(handler)
    root.setLevel(level)
