"""The default model, real weights: the engine's answers are transformers' own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from radix_engine.model.config import read_config
from radix_engine.model.gguf_files import GGUFFiles
from radix_engine.model.gguf_header import read_gguf_header
from radix_engine.model.source import ModelFolder, resolve_model
from server import Engine, EngineOptions, GenerationParams, SamplingParams

pytestmark = pytest.mark.slow

NEW_TOKENS = 5
LENGTHS = (1, 2, 5, 9, 15, 16, 17, 31, 32, 33, 47, 64, 65, 100, 128, 161, 240, 257, 400, 700)
GREEDY = GenerationParams(NEW_TOKENS, SamplingParams(temperature=0.0))

TEXT = """
A lighthouse keeper writes down the weather four times a day. In the morning she climbs the stairs,
reads the barometer, and looks at the flags in the harbour. If the wind comes from the north, all
is calm by noon; if it comes from the west, no ferry will leave. She has kept these notes for
thirty years, and nobody has ever asked to read them. One autumn a student arrives who studies
storms. He wants to know how often the wind turned within an hour, and whether it turned faster in
years when the water was warm. The keeper makes tea, opens the first of forty notebooks, and says
that he had better sit down. They read until the lamp has to be lit. By the end of the week the
student has filled a table with six columns: the date, the hour, the direction, the strength, the
pressure and a remark. The remarks are what he likes best. Under the third of March somebody painted
the boat house blue. Under the ninth of July a seal slept on the landing stage until the children
came. Numbers alone would have told him that both days were quiet. When he leaves, the keeper gives
him a copy of the keys to the cupboard, since the notebooks will still be there in winter and the
stairs are steep. He sends her the finished paper a year later. On the last page he thanks the
harbour, the flags, and the person who wrote everything down. She reads it twice, climbs the stairs,
and notes that the wind is light, from the south, and that the post came early. In the following
years more people write to her. A museum asks for a photograph of the lamp, a school for a list of
the birds that pass in October, and an engineer for the height of the highest wave. She answers all
of them by hand. To the museum she sends the photograph. To the school she sends a list of nineteen
birds, and adds that the children should look for a twentieth, because she is sure that she missed
one. To the engineer she writes that the highest wave was never measured, but that it took the gate,
and that the gate was found on the other side of the bay, four kilometres away, still locked. The
engineer calculates for a week and then replies that this is possible. She pins his letter next to
the barometer, where it turns yellow in the light, and goes on writing down the weather.
"""


@pytest.fixture(scope="module")
def folder() -> ModelFolder:
    return resolve_model(None)


@pytest.fixture(scope="module")
def reference(folder: ModelFolder) -> Any:
    """The same file, read and dequantized by transformers."""
    from transformers import AutoModelForCausalLM, GgufConfig

    assert folder.weights is not None
    return AutoModelForCausalLM.from_pretrained(
        folder.weights.parent,
        gguf_file=folder.weights.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )


@pytest.fixture(scope="module")
def engine(folder: ModelFolder) -> Iterator[Engine]:
    options = EngineOptions(model=str(folder.path), dtype="fp32", kv_memory="512MiB")
    with Engine.load(options) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def prompts(engine: Engine) -> list[list[int]]:
    """20 prompts of 1 to 700 tokens; no two begin alike, so that only repeats hit."""
    tokens = 2 * engine.text.encode(TEXT.strip())
    return [tokens[3 * i : 3 * i + length] for i, length in enumerate(LENGTHS)]


def test_all_weights_equal_those_that_transformers_reads(
    folder: ModelFolder, reference: Any
) -> None:
    assert folder.weights is not None
    config, header = read_config(folder.path), read_gguf_header(folder.weights)
    files = GGUFFiles(folder.weights, header, config)
    weights = dict(reference.named_parameters())  # a tied head is not named again
    assert len(weights) == len(header.tensors) == 272
    for name, expected in weights.items():
        if expected.ndim == 1:
            assert torch.equal(files.vector(name, len(expected)), expected), name
        else:
            values = files.matrix(name, *expected.shape).dense(torch.float32)
            assert torch.equal(values, expected), name


def test_on_disk_is_little_more_than_the_file(folder: ModelFolder) -> None:
    assert folder.weights is not None
    size = sum(path.stat().st_size for path in folder.path.iterdir())
    assert size < folder.weights.stat().st_size + 5_000_000 < 105_000_000


def test_greedy_answers_equal_transformers_cold_warm_and_in_one_batch(
    engine: Engine, reference: Any, prompts: list[list[int]]
) -> None:
    assert [len(prompt) for prompt in prompts] == list(LENGTHS)
    expected = []
    for prompt in prompts:
        ids = reference.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            pad_token_id=0,
        )
        expected.append(tuple(ids[0, len(prompt) :].tolist()))

    cold = [engine.generate([prompt], GREEDY)[0] for prompt in prompts]
    assert [answer.token_ids for answer in cold] == expected
    # A token or two that some block of another prompt happens to begin with, too.
    assert all(answer.usage.cached_tokens < 16 for answer in cold)

    warm = [engine.generate([prompt], GREEDY)[0] for prompt in prompts]
    assert [answer.token_ids for answer in warm] == expected
    hits = [answer.usage.cached_tokens for answer in warm]
    for length, hit in zip(LENGTHS, hits, strict=True):
        stored = (length + NEW_TOKENS - 1) // 16 * 16
        assert min(length - 1, stored) <= hit <= min(length - 1, stored + 15)

    engine.flush_cache()
    batch = engine.generate(prompts, GREEDY)
    assert [answer.token_ids for answer in batch] == expected
    assert engine.audit() == []


def test_it_knows_the_capital_of_france_and_says_what_was_cached(engine: Engine) -> None:
    engine.flush_cache()
    prompt = engine.text.render_chat(
        [{"role": "user", "content": "What is the capital of France?"}]
    )
    params = GenerationParams(20, SamplingParams(temperature=0.0))
    first, second = (engine.generate([prompt], params)[0] for _ in range(2))
    assert "Paris" in first.text
    assert second.text == first.text
    assert len(prompt) - 17 <= second.usage.cached_tokens <= len(prompt) - 1
