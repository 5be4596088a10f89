"""Grammars over small tokenizers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tokenizers import Tokenizer

from server.constrained.grammars import Grammars
from tests.constrained.tokenizers_of_two_kinds import BYTE_END, byte_level
from tests.tiny import VOCAB_SIZE


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return byte_level(tmp_path_factory.mktemp("byte-level") / "tiny")


@pytest.fixture(scope="package")
def grammars(tokenizer: Tokenizer) -> Iterator[Grammars]:
    made = Grammars(tokenizer, VOCAB_SIZE, frozenset({BYTE_END}))
    yield made
    made.close()
