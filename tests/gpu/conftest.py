"""Says at the end how many FlashInfer calls of our code the real package would have taken."""

from __future__ import annotations

import pytest

from tests.gpu.binding import EXECUTED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line, where any were made."""
    if EXECUTED:
        by_name = ", ".join(f"{name} {count:,}" for name, count in sorted(EXECUTED.items()))
        terminalreporter.write_line(
            f"{EXECUTED.total():,} FlashInfer calls were bound to the real package's signatures "
            f"and executed by the fake: {by_name}"
        )
