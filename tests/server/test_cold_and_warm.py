"""A prompt is answered alike cold and warm, alone and among others, for lengths about blocks."""

from __future__ import annotations

import pytest
import torch

from radix_engine.model.batch import Span
from server import Engine
from tests.model.test_runner import TOLERANCE
from tests.server.conftest import MakeEngine
from tests.server.prompts import greedy, ids

P = 16
LENGTHS = [1, P - 1, P, P + 1, 63, 64, 65, 257]
NEW = 6


class Recorder:
    """Keeps the logits that an engine samples from."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[torch.Tensor] = []
        model = engine._loop._steps._model
        forward = model.forward

        def recording(spans: list[Span]) -> torch.Tensor:
            logits = forward(spans)
            self.rows.append(logits.clone())
            return logits

        monkeypatch.setattr(model, "forward", recording)

    def take(self) -> torch.Tensor:
        """Those of one request that ran by itself: [new tokens, vocabulary]."""
        rows, self.rows = torch.cat(self.rows), []
        return rows


@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize("length", LENGTHS)
def test_cold_and_warm_give_the_same_tokens_and_nearly_the_same_logits(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, length: int, partial: bool
) -> None:
    engine = make_engine(num_blocks=192, partial_blocks=partial)
    oracle = make_engine(num_blocks=192, prefix_cache=False)
    prompt, neighbour = ids(length, 1), [*ids(length, 1)[: length // 2], *ids(40, 7)]
    (expected,) = oracle.generate([prompt], greedy(NEW))
    recorder = Recorder(engine, monkeypatch)
    seen: list[tuple[int, torch.Tensor]] = []

    def answer() -> None:
        (given,) = engine.generate([prompt], greedy(NEW))
        assert given.token_ids == expected.token_ids
        seen.append((given.usage.cached_tokens, recorder.take()))

    answer()
    engine.flush_cache()
    answer()
    answer()
    engine.generate([neighbour], greedy(NEW))
    recorder.take()
    answer()
    # Stored are the full blocks of the prompt and of all of the answer but its last token.
    warm = min(length - 1, (length + NEW - 1) // P * P)
    warm = warm if partial else warm // P * P
    assert [cached for cached, _ in seen][:2] == [0, 0]
    assert seen[2][0] == warm
    assert seen[3][0] >= warm
    for _, logits in seen[1:]:
        assert logits.shape == seen[0][1].shape
        torch.testing.assert_close(logits, seen[0][1], rtol=0, atol=TOLERANCE)
    batch = [prompt, neighbour, *(ids(length, seed) for seed in range(2, 7)), prompt]
    alone = [one.token_ids for one in oracle.generate(batch, greedy(NEW))]
    assert alone[0] == alone[-1] == expected.token_ids
    for _ in range(2):  # some of it cached, then all of it
        assert [one.token_ids for one in engine.generate(batch, greedy(NEW))] == alone
    assert engine.audit() == []
