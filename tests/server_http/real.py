"""A real engine with a tiny model behind the HTTP side, for tests of what both do together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from fastapi.testclient import TestClient

from radix_engine.model.linear import TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.served import torch_model
from radix_engine.model.source import ModelFolder
from scheduler import Limits
from server import Engine
from server.http import create_app
from server.http.settings import HttpSettings
from server.options import CacheOptions
from server.text import TextCodec
from tests.tiny import make_tiny_folder

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


def make_tiny_engine(
    folder: Path, num_blocks: int = 64, limits: Limits | None = None, **cache: Any
) -> Engine:
    """An engine over a tiny random model, whose folder is made if it is missing."""
    torch.set_num_threads(1)
    if not (folder / "tokenizer.json").is_file():
        make_tiny_folder(folder, tokenizer=True)
    model = torch_model(load_model(ModelFolder(folder, "tiny"), TorchPacking(torch.float32)))
    options = CacheOptions(**cache)
    return Engine(model, TextCodec(folder), num_blocks, limits=limits, cache=options)


@contextmanager
def tiny_engine(
    folder: Path, num_blocks: int = 64, limits: Limits | None = None, **cache: Any
) -> Iterator[Engine]:
    """The same; audited at the end."""
    with make_tiny_engine(folder, num_blocks, limits, **cache) as engine:
        yield engine
        assert engine.audit() == []


@contextmanager
def client_of(engine: Engine, settings: HttpSettings | None = None) -> Iterator[TestClient]:
    """A client on the server's own machine."""
    app = create_app(engine, settings=settings)
    with TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 50_000)) as client:
        yield client


def ask(client: TestClient, path: str, **body: Any) -> Any:
    """The answer to a body, which must be 200."""
    response = client.post(path, json={"max_tokens": 1, "temperature": 0, **body})
    assert response.status_code == 200, response.text
    return response.json()


def cached(client: TestClient, path: str, **body: Any) -> int:
    """How many tokens of a prompt were cached."""
    details = ask(client, path, **body)["usage"]["prompt_tokens_details"]
    count: int = details["cached_tokens"]
    return count


def conversation(system: str, *texts: str) -> list[dict[str, Any]]:
    """A system prompt, and then the user's and the assistant's texts in turn."""
    roles = ("user", "assistant")
    said = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    return [{"role": "system", "content": system}, *said]
