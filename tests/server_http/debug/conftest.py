"""Engines with a tiny model, whose chat template shows tools, for the debug API's tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from server import Engine
from tests.server_http.real import client_of, tiny_engine
from tests.server_http.running import serving
from tests.tiny import make_tiny_folder

_TEMPLATE = (
    "{% if tools %}{{ '<|im_start|>system\nTools: ' }}"
    "{% for tool in tools %}{{ tool.function.name + '(' + tool.function.description + '). ' }}"
    "{% endfor %}{{ '<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has a long context."""
    path = make_tiny_folder(
        tmp_path_factory.mktemp("tiny"), tokenizer=True, max_position_embeddings=16_384
    )
    file = path / "tokenizer_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"chat_template": _TEMPLATE}))
    return path


@pytest.fixture
def engine(folder: Path) -> Iterator[Engine]:
    """One with room for 8,192 tokens."""
    with tiny_engine(folder, 512) as engine:
        yield engine


@pytest.fixture
def url(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server's address; its end leaves the engine to its audit."""
    with monkeypatch.context() as patch:
        patch.setattr(engine, "shutdown", lambda grace_s: None)
        with serving(engine) as (address, _, _):
            yield address


@pytest.fixture
def client(engine: Engine) -> Iterator[TestClient]:
    """On the engine's own machine."""
    with client_of(engine) as client:
        yield client
