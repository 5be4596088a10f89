"""A prompt is answered alike cold and warm, alone and among others, for lengths about blocks."""

from __future__ import annotations

import pytest
import torch

from radix_engine.cpu.processor import KernelKind
from radix_engine.model.batch import Span
from server import Engine
from tests.model.test_runner import TOLERANCE
from tests.server.conftest import KINDS, MakeEngine
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


@pytest.mark.parametrize(
    "kind", [None, *KINDS[:1]], ids=lambda kind: kind.name if kind else "torch"
)
@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize("length", LENGTHS)
def test_cold_and_warm_give_the_same_tokens_and_logits(
    make_engine: MakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    length: int,
    partial: bool,
    kind: KernelKind | None,
) -> None:
    """The very same logits on the compiled kernels; on torch's up to rounding."""
    engine = make_engine(num_blocks=192, partial_blocks=partial, kind=kind)
    oracle = make_engine(num_blocks=192, prefix_cache=False, kind=kind)
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
        tolerance = 0.0 if engine.info.exact else TOLERANCE
        torch.testing.assert_close(logits, seen[0][1], rtol=0, atol=tolerance)
    batch = [prompt, neighbour, *(ids(length, seed) for seed in range(2, 7)), prompt]
    alone = [one.token_ids for one in oracle.generate(batch, greedy(NEW))]
    assert alone[0] == alone[-1] == expected.token_ids
    for _ in range(2):  # some of it cached, then all of it
        assert [one.token_ids for one in engine.generate(batch, greedy(NEW))] == alone
    assert engine.audit() == []


@pytest.mark.skipif(not KINDS, reason="needs a processor that the kernels run on")
def test_a_hit_a_part_of_one_a_miss_and_one_token_share_a_step(make_engine: MakeEngine) -> None:
    """Each answer is the one it gets alone, on an engine without a cache."""
    full, other = ids(64, 1), ids(50, 9)
    prompts = [[*full], [*full[:40], *ids(30, 5)], other, [7]]
    oracle = make_engine(num_blocks=192, prefix_cache=False, kind=KINDS[0])
    alone = [oracle.generate([prompt], greedy(NEW))[0].token_ids for prompt in prompts]
    engine = make_engine(num_blocks=192, kind=KINDS[0])
    engine.generate([full], greedy(NEW))
    together = engine.generate(prompts, greedy(NEW))
    assert [answer.token_ids for answer in together] == alone
    assert [answer.usage.cached_tokens for answer in together] == [63, 40, 0, 0]
