"""The GPU's forward pass, run on a CPU: it yields what the model's own runner yields."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from radix_engine.attention.flashinfer_attention import FlashInferAttention
from radix_engine.attention.torch_paged import TorchAttention
from radix_engine.gpu.ops import FlashInferOps, TorchOps
from radix_engine.gpu.runner import GpuRunner
from radix_engine.memory.kv_memory import KVMemory
from radix_engine.model.batch import Follow, Span
from radix_engine.model.linear import Linear
from radix_engine.model.runner import ModelRunner
from radix_engine.model.served import Runner
from radix_engine.model.weights import LoadedModel
from tests.gpu.binding import bound_fake
from tests.model.helpers import random_tokens, tiny_runner

NUM_BLOCKS = 64

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, all biases, own head, scaled": (
        "llama",
        {
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": False,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "mistral, windows": ("mistral", {"sliding_window": 21, "num_hidden_layers": 3}),
    "qwen2": ("qwen2", {"tie_word_embeddings": False}),
    "qwen3": ("qwen3", {}),
    "qwen3, some windows": (
        "qwen3",
        {
            "use_sliding_window": True,
            "sliding_window": 21,
            "max_window_layers": 1,
            "num_hidden_layers": 3,
        },
    ),
}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tiny matrices gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def memory_of(model: LoadedModel[Linear], num_blocks: int = NUM_BLOCKS) -> KVMemory:
    config = model.config
    return KVMemory(
        config.num_layers, num_blocks, 16, config.num_kv_heads, config.head_dim, model.dtype
    )


def over_torch(model: LoadedModel[Linear]) -> GpuRunner:
    memory = memory_of(model)
    return GpuRunner(model, memory, TorchAttention(memory), TorchOps())


def over_flashinfer(model: LoadedModel[Linear]) -> GpuRunner:
    memory, fake = memory_of(model), bound_fake()
    attention = FlashInferAttention(memory, model.config.num_heads, fake, workspace_bytes=2**20)
    return GpuRunner(model, memory, attention, FlashInferOps(fake))


MAKERS: dict[str, Callable[[LoadedModel[Linear]], GpuRunner]] = {
    "torch": over_torch,
    "flashinfer": over_flashinfer,
}


class Case(NamedTuple):
    """A model's own runner, and the one under test over the same weights."""

    model_runner: ModelRunner
    runner: GpuRunner


def tiny_model(path: Path, family: str, **overrides: Any) -> ModelRunner:
    model_type, fields = FAMILIES[family]
    return tiny_runner(path, model_type, **{"head_dim": 64, **fields, **overrides})


@pytest.fixture(scope="module", params=FAMILIES)
def model_runner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ModelRunner:
    return tiny_model(tmp_path_factory.mktemp("family"), request.param)


@pytest.fixture(scope="module", params=MAKERS)
def case(request: pytest.FixtureRequest, model_runner: ModelRunner) -> Case:
    return Case(model_runner, MAKERS[request.param](model_runner.model))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    return tiny_model(tmp_path_factory.mktemp("llama"), "llama")


def tables(*blocks: int, seed: int = 0) -> list[list[int]]:
    """Block tables of these lengths, of blocks in no order; the last block is in none."""
    shuffled = random.Random(seed).sample(range(NUM_BLOCKS - 1), sum(blocks))
    result = []
    for count in blocks:
        result.append(shuffled[:count])
        del shuffled[:count]
    return result


def all_logits(runner: Runner, tokens: Sequence[int]) -> torch.Tensor:
    """Logits after every token of a prompt that is run whole, in blocks of its own."""
    (table,) = tables(-(-len(tokens) // 16), seed=9)
    return runner.forward([Span(tokens, 0, table, len(tokens))])


def greedy(runner: Runner, prompt: Sequence[int], count: int, table: Sequence[int]) -> list[int]:
    answer = [int(runner.forward([Span(prompt, 0, table, 1)])[0].argmax())]
    while len(answer) < count:
        span = Span(answer[-1:], len(prompt) + len(answer) - 1, table, 1)
        answer.append(int(runner.forward([span])[0].argmax()))
    return answer


def assert_near(left: torch.Tensor, right: torch.Tensor) -> None:
    assert left.dtype == torch.float32
    torch.testing.assert_close(left, right, rtol=0, atol=1e-4)


def test_a_whole_prompt_has_the_models_logits_after_every_token(case: Case) -> None:
    tokens = random_tokens(45)
    logits = all_logits(case.runner, tokens)
    assert logits.shape == (45, 512)
    assert_near(logits, all_logits(case.model_runner, tokens))


@pytest.mark.parametrize("chunks", [[20, 1, 21, 3], [1, 44], [40, 5]])
def test_a_prompt_in_chunks_has_the_models_logits(case: Case, chunks: list[int]) -> None:
    tokens = random_tokens(45, len(chunks))
    (table,) = tables(3)
    start, logits = 0, []
    for length in chunks:
        span = Span(tokens[start : start + length], start, table, length)
        logits.append(case.runner.forward([span]))
        start += length
    assert_near(torch.cat(logits), all_logits(case.model_runner, tokens))


def test_spans_of_all_kinds_in_one_step_yield_what_each_yields_alone(case: Case) -> None:
    # (cached tokens, tokens of this step, how many want logits)
    shapes = [(0, 33, 3), (40, 1, 1), (17, 5, 0), (0, 1, 1), (30, 2, 2), (15, 1, 1)]
    mine = tables(*[-(-(start + length) // 16) for start, length, _ in shapes])
    spans, expected = [], []
    for i, ((start, length, wanted), table) in enumerate(zip(shapes, mine, strict=True)):
        tokens = random_tokens(start + length, seed=i)
        expected.append(all_logits(case.model_runner, tokens)[start + length - wanted :])
        if start:
            case.runner.forward([Span(tokens[:start], 0, table, 0)])
        spans.append(Span(tokens[start:], start, table, wanted))
    assert_near(case.runner.forward(spans), torch.cat(expected))


def test_decodes_in_one_step_yield_what_each_yields_alone(case: Case) -> None:
    lengths = [1, 2, 16, 17, 40, 60]
    mine = tables(*[-(-length // 16) for length in lengths])
    spans, expected = [], []
    for length, table in zip(lengths, mine, strict=True):
        tokens = random_tokens(length, seed=length)
        expected.append(all_logits(case.model_runner, tokens)[-1:])
        if length > 1:
            case.runner.forward([Span(tokens[:-1], 0, table, 0)])
        spans.append(Span(tokens[-1:], length - 1, table, 1))
    assert_near(case.runner.forward(spans), torch.cat(expected))


def test_a_hit_on_anothers_blocks_yields_what_a_miss_yields(case: Case) -> None:
    shared = random_tokens(32, 1)
    tails = [random_tokens(7, 2), random_tokens(1, 3), random_tokens(20, 4)]
    expected = [all_logits(case.model_runner, shared + tail)[-1] for tail in tails]
    prefix, *own = tables(2, 1, 1, 2)
    # The first tail is computed in the step that fills the prefix, the others after it.
    spans = [
        Span(tails[0], 32, prefix + own[0], 1),
        Span(shared, 0, prefix, 0),
    ]
    assert_near(case.runner.forward(spans), torch.stack(expected[:1]))
    later = [
        Span(tail, 32, prefix + table, 1) for tail, table in zip(tails[1:], own[1:], strict=True)
    ]
    assert_near(case.runner.forward(later), torch.stack(expected[1:]))


def test_tokens_that_another_step_samples_are_taken_from_the_device(case: Case) -> None:
    # (cached tokens, tokens of this step); the last token of the first and the third is unknown
    shapes = [(20, 1), (0, 33), (15, 3), (4, 1)]
    mine = tables(*[-(-(start + length) // 16) for start, length in shapes])
    spans, expected = [], []
    for i, ((start, length), table) in enumerate(zip(shapes, mine, strict=True)):
        tokens = random_tokens(start + length, seed=i)
        expected.append(all_logits(case.model_runner, tokens)[-1])
        if start:
            case.runner.forward([Span(tokens[:start], 0, table, 0)])
        spans.append(Span(tokens[start:], start, table, 1))
    sampled = torch.tensor([3, spans[2].tokens[-1], 5, spans[0].tokens[-1]])
    for i in (0, 2):
        # 600 is no token: whatever stands there is not looked at
        spans[i] = spans[i]._replace(tokens=[*spans[i].tokens[:-1], 600])
    logits = case.runner.forward_following(spans, Follow(sampled, [36, 0], [1, 3]))
    assert_near(logits, torch.stack(expected))


@pytest.mark.parametrize(
    ("places", "rows", "message"),
    [
        ([2], [0], "a place of another step's token lies outside 0 to 1"),
        ([-1], [0], "a place of another step's token lies outside 0 to 1"),
        ([0], [2], "a row of another step's token lies outside 0 to 1"),
        ([0, 1], [0, -1], "a row of another step's token lies outside 0 to 1"),
        ([0, 1], [0], "1 tokens of another step cannot go to 2 places"),
        ([], [], "0 tokens of another step cannot go to 0 places"),
    ],
)
def test_tokens_of_another_step_that_do_not_fit_are_refused(
    llama: ModelRunner, places: list[int], rows: list[int], message: str
) -> None:
    runner = over_torch(llama.model)
    spans = [Span([1], 0, [0], 1), Span([2], 0, [1], 1)]
    with pytest.raises(ValueError, match=message):
        runner.forward_following(spans, Follow(torch.tensor([4, 5]), places, rows))
    assert all(not layer.any() for layer in runner.memory.layers)


def test_greedy_answers_are_the_models(case: Case) -> None:
    prompt = random_tokens(27, 5)
    (table,) = tables(3)
    assert greedy(case.runner, prompt, 16, table) == greedy(case.model_runner, prompt, 16, table)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_step_that_wants_no_logits_still_writes_every_layer(
    llama: ModelRunner, maker: str
) -> None:
    runner = MAKERS[maker](llama.model)
    tokens = random_tokens(20)
    assert runner.forward([Span(tokens, 0, [1, 2], 0)]).shape == (0, 512)
    written = [layer[[1, 2]].clone() for layer in runner.memory.layers]
    runner.forward([Span(tokens, 0, [3, 4], 1)])
    for before, layer in zip(written, runner.memory.layers, strict=True):
        assert before[0].abs().sum(dim=(-1, -2)).min() > 0
        torch.testing.assert_close(before, layer[[3, 4]], rtol=0, atol=1e-5)
    assert runner.forward([]).shape == (0, 512)


def test_copied_rows_are_a_hit(llama: ModelRunner) -> None:
    runner = over_torch(llama.model)
    tokens = random_tokens(12)
    runner.forward([Span(tokens, 0, [3], 0)])
    runner.copy_rows([(3, 8, 10)])
    other = tokens[:10] + random_tokens(4, 1)
    logits = runner.forward([Span(other[10:], 10, [8], 1)])
    assert_near(logits, all_logits(llama, other)[-1:])


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen2"])
def test_bfloat16_stays_near_float32(tmp_path: Path, maker: str, family: str) -> None:
    exact = tiny_model(tmp_path / "exact", family)
    rounded = tiny_model(tmp_path / "rounded", family, dtype=torch.bfloat16)
    runner = MAKERS[maker](rounded.model)
    tokens = random_tokens(40)
    logits, expected = all_logits(runner, tokens), all_logits(exact, tokens)
    assert logits.dtype == torch.float32
    # Logits here have a deviation of 0.6; some roundings to 8 bits come to some hundredths.
    torch.testing.assert_close(logits, expected, rtol=0, atol=0.1)


@pytest.mark.parametrize(
    ("span", "message"),
    [
        (Span([], 0, [0], 1), "at least one token"),
        (Span([1], 0, [0], 2), "num_logits must be from 0 to the span's 1 tokens, not 2"),
        (Span([1], -1, [0], 1), "positions"),
        (Span([1] * 17, 0, [0], 1), "needs 2 blocks"),
        (Span([1], 1024, list(range(65)), 1), "context of 1024"),
        (Span([1], 0, [NUM_BLOCKS], 1), "outside 0 to 63"),
        (Span([512], 0, [0], 1), "outside 0 to 511"),
        (Span([-1], 0, [0], 1), "outside 0 to 511"),
    ],
)
def test_a_span_that_does_not_fit_is_refused_and_nothing_is_written(
    llama: ModelRunner, span: Span, message: str
) -> None:
    runner = over_torch(llama.model)
    with pytest.raises(ValueError, match=message):
        runner.forward([Span([3], 0, [5], 1), span])
    assert all(not layer.any() for layer in runner.memory.layers)


def test_a_memory_of_another_model_is_refused(llama: ModelRunner) -> None:
    for layers, heads, head_dim in [(1, 2, 64), (2, 4, 64), (2, 2, 128)]:
        memory = KVMemory(layers, 4, 16, heads, head_dim, torch.float32)
        with pytest.raises(ValueError, match=r"cannot use a memory of . layers"):
            GpuRunner(llama.model, memory, TorchAttention(memory), TorchOps())


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts torch's operations, and apart those that write int32 into a tensor."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: Counter[str] = Counter()
        self.integer_copies = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.seen[name] += 1
        self.integer_copies += name == "copy_" and args[0].dtype == torch.int32
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("follow", [None, Follow(torch.tensor([9, 8]), [20], [1])])
def test_a_step_asks_nothing_of_the_device_and_sends_its_integers_at_once(
    llama: ModelRunner, monkeypatch: pytest.MonkeyPatch, follow: Follow | None
) -> None:
    runner = over_torch(llama.model)
    spans = [Span(random_tokens(20), 0, [1, 2], 2), Span([7], 0, [3], 1)]
    for _ in range(2):
        runner.forward(spans)  # both host buffers are there now

    def refuse(*_: Any) -> Any:
        raise AssertionError("this waits for the device")

    for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
    with Watch() as watch:
        runner.forward_following(spans, follow)
    monkeypatch.undo()
    assert not {"_local_scalar_dense", "item", "nonzero", "equal", "is_nonzero"} & set(watch.seen)
    assert watch.seen["embedding"] == 1
    assert watch.integer_copies == 1
