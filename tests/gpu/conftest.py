"""One thread for tests that compute on tiny models; and, at the end, how many FlashInfer calls of
our code the real package would have taken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.gpu.binding import EXECUTED


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tiny matrices gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line, where any were made."""
    if EXECUTED:
        by_name = ", ".join(f"{name} {count:,}" for name, count in sorted(EXECUTED.items()))
        terminalreporter.write_line(
            f"{EXECUTED.total():,} FlashInfer calls were bound to the real package's signatures "
            f"and executed by the fake: {by_name}"
        )
