"""Steps that are planned ahead, over a model whose memory is checked and with which anything may go
wrong: whom it does not concern gets the whole answer, and nothing is lost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from radix_engine.cache import CacheMode, Namespace, PrefixCache
from radix_engine.cache.flat import FlatCache
from radix_engine.model.batch import Follow, Span
from radix_engine.model.sampling_params import SamplingParams
from scheduler import Limits, Request, Scheduler
from server import GenerationParams, Output
from server.answer import Answer
from server.look_ahead import Flight, launch
from server.steps import Steps
from tests.cache.trees import ids
from tests.checking_model import (
    POISON,
    VOCABULARY,
    CheckingModel,
    answer_alone,
    next_token,
    prefix_hashes,
)

GREEDY = SamplingParams(temperature=0.0)
NO_NUMBER = -2


class Model:
    """Rows of K and V are hashes of the prefix, as in `CheckingModel`. ``faults``: what was read or
    written wrongly. ``breaks``: makes a step fail, or a request's logits no numbers."""

    def __init__(self, cache: Any, draw: random.Random) -> None:
        checking = CheckingModel(cache)
        self.pool, self.rows, self.size = checking.pool, checking.rows, cache.block_size
        self.draw = draw
        self.share = 0.0  # of steps that fail, and of requests whose logits are no numbers
        self.broken: list[Any] = []  # block tables of those
        self.followed = 0
        self.faults: list[str] = []

    def copy_rows(self, copies: Sequence[tuple[int, int, int]]) -> None:
        copied = [(target, self.rows[source][:rows]) for source, target, rows in copies]
        self._spoil_freed()
        for target, rows in copied:
            if POISON in rows:
                self.faults.append("rows are copied that never were written")
            self.rows[target][: len(rows)] = rows

    def forward(self, spans: Sequence[Span]) -> torch.Tensor:
        return self.forward_following(spans, None)

    def forward_following(self, spans: Sequence[Span], follow: Follow | None) -> torch.Tensor:
        self._spoil_freed()
        chance = self.draw.random()
        if chance < self.share:
            raise ArithmeticError("boom")
        flat = [token for span in spans for token in span.tokens]
        if follow is not None:
            self.followed += 1
            tokens = follow.tokens.tolist()
            for place, row in zip(follow.places, follow.rows, strict=True):
                flat[place] = tokens[row]
        logits = []
        for span in spans:
            own, flat = flat[: len(span.tokens)], flat[len(span.tokens) :]
            logits += self._row(span, own)
            if chance > 1 - 2 * self.share and len(spans) > 1:  # some of it has been written
                raise torch.OutOfMemoryError("out of memory")
        return torch.stack(logits) if logits else torch.empty(0, VOCABULARY)

    def _row(self, span: Span, tokens: Sequence[int]) -> list[torch.Tensor]:
        places = [(span.block_table[at // self.size], at % self.size) for at in range(span.start)]
        before = [self.rows[block][row] for block, row in places]
        if POISON in before:
            self.faults.append("a row is read that was freed or never written")
        hashes = prefix_hashes(tokens, before[-1]) if before else prefix_hashes(tokens)
        sound = NO_NUMBER not in before
        if span.num_logits:
            sound = sound and self.draw.random() >= self.share
            if not sound:
                self.broken.append(span.block_table)
        for position, value in enumerate(hashes, start=span.start):
            block = span.block_table[position // self.size]
            self.rows[block][position % self.size] = value if sound else NO_NUMBER
        row = torch.zeros(VOCABULARY)
        row[next_token(hashes[-1])] = 1.0 if sound else float("nan")
        return [row] * span.num_logits

    def _spoil_freed(self) -> None:
        for block in self.pool.freed:
            self.rows[block][:] = [POISON] * self.size
        self.pool.freed.clear()


class Lost(Flight):
    """A step of which nothing comes."""

    def wait(self) -> tuple[dict[Request, int], list[Request]]:
        raise RuntimeError("lost")


class Texts:
    """In place of a detokenizer: nobody looks at the text."""

    def push(self, token: int) -> str:
        return ""

    def flush(self) -> str:
        return ""


class Load:
    """A load at random on `Steps`, until all answers have ended."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.draw = draw = random.Random(seed)
        self.size, blocks, running = draw.choice([4, 16]), draw.randint(5, 24), draw.randint(1, 6)
        self.room = blocks * self.size
        cache: Any = FlatCache(blocks, self.size)
        if draw.random() < 0.7:
            cache = PrefixCache(blocks, self.size, partial_blocks=draw.random() < 0.7)
        limits = Limits(draw.randint(running, running + 4 * self.size), running)
        self.scheduler = Scheduler(cache, limits, fair=draw.random() < 0.5)
        self.model = Model(cache, draw)
        self.steps = Steps(self.scheduler, self.model, self.model)
        self.now = 0.0
        self.requests: list[Request] = []
        self.told: dict[int, list[int]] = {}
        self.ends: dict[int, Output] = {}
        self.spared: list[str] = []  # who was failed though nothing was wrong with it
        monkeypatch.setattr("server.steps.time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr("server.steps.launch", self.launch)
        self.fail = self.steps.active.fail
        monkeypatch.setattr(self.steps.active, "fail", self.check_failed)

    def launch(self, *arguments: Any) -> Flight:
        flight = launch(*arguments)
        if self.draw.random() < self.model.share:
            return Lost(*(getattr(flight, name) for name in Flight.__slots__))
        return flight

    def check_failed(self, requests: Sequence[Request], error: str) -> None:
        for request in requests if "not finite" in error else ():
            if not any(table is request.block_table for table in self.model.broken):
                self.spared.append(f"request {request.request_id} has failed for another's sake")
        self.fail(requests, error)

    def submit(self) -> None:
        draw = self.draw
        head = ids(draw.randint(1, self.room // 2), draw.randrange(2))
        for _ in range(draw.randint(1, 4)):
            tail = ids(draw.randint(1, self.size), draw.randint(2, 4))
            prompt = head[: draw.choice([len(head), draw.randint(0, len(head))])] + tail
            new = min(draw.randint(1, self.room // 3), self.room - len(prompt) + 1)
            request = Request(
                len(self.requests) + 1,
                prompt,
                new,
                frozenset(draw.sample(range(VOCABULARY), draw.choice([0, 3]))),
                namespace=Namespace(tenant=draw.choice([None, None, "other"])),
                mode=draw.choice([CacheMode.DEFAULT] * 4 + [CacheMode.BYPASS]),
                deadline=self.now + draw.randint(0, 40) if draw.random() < 0.1 else None,
            )
            self.requests.append(request)
            logprobs = 0 if draw.random() < 0.1 else None  # has to be looked at
            params = GenerationParams(new, GREEDY, logprobs=logprobs)
            texts: Any = Texts()
            self.steps.active.add([Answer(request, params, GREEDY, 0, texts, self.receive)])

    def receive(self, output: Output) -> None:
        assert output.request_id not in self.ends, "after its end"
        self.told.setdefault(output.request_id, []).extend(output.token_ids)
        if output.finish_reason is not None:
            self.ends[output.request_id] = output
        elif self.draw.random() < 0.01:
            raise RuntimeError("nobody listens")

    def play(self) -> None:
        draw, steps = self.draw, self.steps
        self.model.share = draw.choice([0.0, 0.02])
        for _ in range(3000):
            if len(self.requests) < 12 and draw.random() < 0.15:
                self.submit()
            for request in self.requests:
                if draw.random() < 0.005:
                    steps.active.end(request.request_id, "abort")
            if draw.random() < 0.02:
                self.scheduler.cache.flush()
            if steps.has_work:
                steps.step()
                assert self.scheduler.audit() == []
            self.now += 1
            if len(self.requests) >= 12 and not steps.has_work:
                return
        raise AssertionError("no end in sight")


def test_whatever_goes_wrong_the_others_answers_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons: set[str | None] = set()
    followed = 0
    for seed in range(60):
        load = Load(seed, monkeypatch)
        load.play()
        assert load.model.faults == load.spared == []
        for request in load.requests:
            end, told = load.ends[request.request_id], load.told[request.request_id]
            whole = answer_alone(
                request.tokens[: request.num_prompt_tokens],
                request.max_new_tokens,
                request.stop_token_ids,
            )
            assert told == whole[: len(told)]
            if end.finish_reason in ("stop", "length") and request.deadline is None:
                assert told == whole
            reasons.add(end.error or end.finish_reason)
        followed += load.model.followed
        assert load.steps.active.is_empty
        assert load.scheduler.num_running == load.scheduler.num_waiting == 0
        assert load.scheduler.cache.pool.private_blocks == 0
    assert followed > 1000
    assert {"stop", "length", "abort", "RuntimeError: lost", "ArithmeticError: boom"} <= reasons
    assert "the model's logits are not finite numbers" in reasons
