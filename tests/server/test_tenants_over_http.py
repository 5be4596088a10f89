"""The engine behind HTTP, with tenants: whose turn it is, and how many may wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import httpx
import pytest
import torch

from radix_engine.model.linear import TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.served import torch_model
from radix_engine.model.source import ModelFolder
from scheduler import Limits
from server.engine import Engine
from server.generation_params import GenerationParams
from server.http.settings import HttpSettings
from server.outputs import Output
from server.text import TextCodec
from tests.server.test_queue_limit import held
from tests.server_http.keys import ACME, BETA, bearer, ring
from tests.server_http.running import serving

TIMEOUT_S = 60


class Recording(Engine):
    """Keeps whose requests have ended, in that order."""

    def __init__(self, folder: Path, limits: Limits, *, fair: bool) -> None:
        torch.set_num_threads(1)
        model = torch_model(load_model(ModelFolder(folder, "tiny"), TorchPacking(torch.float32)))
        super().__init__(model, TextCodec(folder), 64, limits=limits, order="fcfs", fair=fair)
        self.ended: list[str | None] = []

    def submit(
        self, prompt: Sequence[int], params: GenerationParams, on_output: Callable[[Output], None]
    ) -> int:
        def note(output: Output) -> None:
            if output.finish_reason is not None:
                self.ended.append(params.namespace.tenant)
            on_output(output)

        return super().submit(prompt, params, note)

    def waits(self, tenant: str | None, count: int) -> bool:
        """Whether so many of a tenant's requests wait; None: of all."""
        state = self.queue(tenant)
        return count == (state.waiting if tenant is None else state.of_tenant)


def ask(url: str, key: str, seed: int) -> httpx.Response:
    body = {"prompt": [5 + seed, 6, 7], "max_tokens": 1}
    return httpx.post(url + "/v1/completions", json=body, headers=bearer(key), timeout=TIMEOUT_S)


def in_threads(work: Sequence[Callable[[], object]]) -> list[threading.Thread]:
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    return threads


def wait_until(true: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(TIMEOUT_S * 100):
        if true():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not happen in time")


@pytest.mark.parametrize("fair", [True, False])
def test_a_flood_of_one_tenant_keeps_another_waiting_only_without_turns(
    tiny_folder: Path, tmp_path: Path, fair: bool
) -> None:
    """Fault F6, with 20 requests of one tenant before one of another."""
    settings = HttpSettings(keys=ring(tmp_path))
    engine = Recording(tiny_folder, Limits(max_running=1), fair=fair)
    with (
        engine,
        serving(engine, settings=settings) as (url, _, _),
    ):
        go_on = held(engine)
        try:
            threads = in_threads([partial(ask, url, ACME, n) for n in range(20)])
            wait_until(partial(engine.waits, "acme", 20))
            threads += in_threads([partial(ask, url, BETA, 50)])
            wait_until(partial(engine.waits, "beta", 1))
        finally:
            go_on.set()
        for thread in threads:
            thread.join(TIMEOUT_S)
        assert sorted(map(str, engine.ended)) == ["acme"] * 20 + ["beta"]
        place = engine.ended.index("beta")
        assert place <= 2 if fair else place == 20


def test_a_full_queue_is_told_during_a_long_step_and_the_rest_is_served(
    tiny_folder: Path, tmp_path: Path
) -> None:
    """Fault F7: of 50, one runs and 8 wait."""
    settings = HttpSettings(keys=ring(tmp_path))
    engine = Recording(tiny_folder, Limits(max_running=1, max_waiting=8), fair=False)
    with (
        engine,
        serving(engine, settings=settings) as (url, _, _),
    ):
        answers: list[int] = []

        def note(seed: int) -> None:
            answers.append(ask(url, ACME, seed).status_code)

        go_on = held(engine)
        try:
            served = []
            for count in range(9):
                served += in_threads([partial(note, count)])
                wait_until(partial(engine.waits, None, count + 1))
            for seed in range(9, 50):
                response = ask(url, (ACME, BETA)[seed % 2], seed)
                assert response.status_code == 429
                assert response.json()["error"]["code"] == "queue_full"
                assert response.headers["retry-after"]
            assert (answers, engine.ended) == ([], [])
        finally:
            go_on.set()
        for thread in served:
            thread.join(TIMEOUT_S)
        assert answers == [200] * 9
        assert engine.queue("acme").of_tenant == 0


def test_a_tenants_queue_is_its_own(tiny_folder: Path, tmp_path: Path) -> None:
    limits = "[tenants.acme]\nmax_queued = 2\n"
    settings = HttpSettings(keys=ring(tmp_path, limits))
    engine = Recording(tiny_folder, Limits(max_running=1), fair=False)
    with (
        engine,
        serving(engine, settings=settings) as (url, _, _),
    ):
        go_on = held(engine)
        try:
            threads = []
            for count in range(3):  # one place to run, two to wait
                threads += in_threads([partial(ask, url, ACME, count)])
                wait_until(partial(engine.waits, "acme", count + 1))
            refused = ask(url, ACME, 9)
            assert refused.json()["error"]["code"] == "tenant_queue_full"
            threads += in_threads([partial(ask, url, BETA, 10)])
            wait_until(partial(engine.waits, "beta", 1))
        finally:
            go_on.set()
        for thread in threads:
            thread.join(TIMEOUT_S)
        assert len(engine.ended) == 4
        assert ask(url, ACME, 11).status_code == 200
