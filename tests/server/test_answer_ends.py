"""Where answers may end: min_tokens, tokens and strings that end them, and what is told of that."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler import Limits
from server import Engine, GenerationParams, RequestRefused, SamplingParams
from tests.server.conftest import MakeEngine
from tests.server.forcing import force
from tests.server.prompts import ids
from tests.tiny import IM_END

GREEDY = SamplingParams(temperature=0.0)
PROMPT = ids(10, 1)
TEXT = "alpha beta gamma delta"


def ask(max_tokens: int = 24, sampling: SamplingParams = GREEDY, **fields: Any) -> GenerationParams:
    return GenerationParams(max_tokens, sampling, **fields)


@pytest.fixture
def speaking(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine that says TEXT, in 16 tokens or so, and then ends."""
    engine = make_engine()
    tokens = engine.text.encode(TEXT)
    assert 14 < len(tokens) < 24
    force(engine, monkeypatch, len(PROMPT), [*tokens, IM_END])
    return engine


@pytest.mark.parametrize(
    ("stops", "text", "reason"),
    [
        (("beta gamma",), "alpha ", "beta gamma"),
        (("ga",), "alpha beta ", "ga"),
        (("zzz",), TEXT, None),
        (("delta!",), TEXT, None),
        (("\n",), TEXT, None),
        (("zzz", "delta"), "alpha beta gamma ", "delta"),
    ],
)
def test_the_stop_string_that_ends_an_answer_is_told(
    speaking: Engine, stops: tuple[str, ...], text: str, reason: str | None
) -> None:
    (whole,) = speaking.generate([PROMPT], ask(stop=stops))
    assert (whole.text, whole.finish_reason, whole.stop_reason) == (text, "stop", reason)
    pieces = list(speaking.stream(PROMPT, ask(stop=stops)))
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.stop_reason for piece in pieces] == [None] * (len(pieces) - 1) + [reason]
    (shown,) = speaking.generate([PROMPT], ask(stop=stops, include_stop=True))
    assert shown.text == text + (reason or "")
    assert shown.stop_reason == reason


def test_an_answer_that_is_cut_has_no_stop_reason(speaking: Engine) -> None:
    (answer,) = speaking.generate([PROMPT], ask(3, stop=("delta",)))
    assert (answer.finish_reason, answer.stop_reason) == ("length", None)


def test_a_token_of_ones_own_ends_an_answer_and_is_told(speaking: Engine) -> None:
    tokens = speaking.text.encode(TEXT)
    end = tokens[5]
    place = tokens.index(end)
    (answer,) = speaking.generate([PROMPT], ask(stop_token_ids=(end, 3)))
    assert answer.token_ids == tuple(tokens[: place + 1])
    assert answer.text == speaking.text.decode(tokens[:place])
    assert (answer.finish_reason, answer.stop_reason) == ("stop", end)
    (shown,) = speaking.generate([PROMPT], ask(stop_token_ids=(end, 3), include_stop=True))
    assert shown.text == speaking.text.decode(tokens[: place + 1])


def test_the_models_own_end_is_no_stop_reason_but_where_it_is_ones_own_too(
    speaking: Engine,
) -> None:
    for own in ((), (IM_END,), (7,)):
        (answer,) = speaking.generate([PROMPT], ask(stop_token_ids=own))
        assert (answer.text, answer.finish_reason, answer.stop_reason) == (TEXT, "stop", None)
    (answer,) = speaking.generate([PROMPT], ask(ignore_eos=True, stop_token_ids=(IM_END,)))
    assert (answer.text, answer.finish_reason, answer.stop_reason) == (TEXT, "stop", IM_END)


def test_a_stop_token_that_no_model_has_is_refused(make_engine: MakeEngine) -> None:
    with pytest.raises(RequestRefused, match="512") as caught:
        make_engine().generate([PROMPT], ask(stop_token_ids=(512,)))
    assert caught.value.param == "stop_token_ids"


@pytest.mark.parametrize("least", [1, 2, 7, 24])
def test_no_end_comes_before_so_many_tokens(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    engine = make_engine()
    force(engine, monkeypatch, len(PROMPT), [IM_END])
    (answer,) = engine.generate([PROMPT], ask(min_tokens=least))
    if least < 24:
        assert len(answer.token_ids) == least + 1, "and then the end, which it wants all the time"
        assert answer.token_ids[-1] == IM_END
        assert answer.finish_reason == "stop"
    else:
        assert (len(answer.token_ids), answer.finish_reason) == (24, "length")
    assert IM_END not in answer.token_ids[:least]


def test_ones_own_stop_tokens_wait_as_well(speaking: Engine) -> None:
    tokens = speaking.text.encode(TEXT)
    (answer,) = speaking.generate([PROMPT], ask(stop_token_ids=(tokens[0],), min_tokens=2))
    assert answer.token_ids[0] != tokens[0]
    assert tokens[0] not in answer.token_ids[:2]


@pytest.mark.parametrize(
    ("least", "text"), [(0, ""), (1, ""), (2, "xan"), (3, "xan"), (4, "xanxan")]
)
def test_a_stop_string_counts_once_a_later_token_completes_it(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, least: int, text: str
) -> None:
    """Each is completed by every second token."""
    engine = make_engine()
    two = [*engine.text.encode("x"), *engine.text.encode("an")]
    assert len(two) == 2
    force(engine, monkeypatch, len(PROMPT), two * 5)
    (answer,) = engine.generate([PROMPT], ask(stop=("xan",), min_tokens=least))
    assert (answer.text, answer.stop_reason) == (text, "xan")
    assert len(answer.token_ids) == least + 2 - least % 2


def test_min_tokens_change_no_greedy_answer_that_is_longer_anyway(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    prompts = [ids(12, seed) for seed in range(4)]
    without = engine.generate(prompts, ask(20))
    least = min(len(each.token_ids) for each in without) - 1
    within = engine.generate(prompts, ask(20, min_tokens=least))
    assert [each.token_ids for each in within] == [each.token_ids for each in without]


def test_preemptions_change_no_end(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tight = make_engine(8, limits=Limits(max_step_tokens=16, max_running=6))
    force(tight, monkeypatch, 20, [IM_END])
    answers = tight.generate([ids(20, seed) for seed in range(6)], ask(60, min_tokens=40))
    assert tight.counters()["preemptions"] > 0
    assert [len(each.token_ids) for each in answers] == [41] * 6


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"min_tokens": -1}, "min_tokens must be a whole number from 0 to max_tokens"),
        ({"min_tokens": 25}, r"max_tokens \(24\), not 25"),
        ({"min_tokens": True}, "min_tokens"),
        ({"stop_token_ids": [1]}, "stop_token_ids must be a tuple"),
        ({"stop_token_ids": (-1,)}, "stop_token_ids"),
        ({"use_beam_search": True, "min_tokens": 1}, "min_tokens and stop_token_ids"),
        ({"use_beam_search": True, "stop_token_ids": (1,)}, "beam search"),
    ],
)
def test_fields_out_of_range_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ask(**fields)
