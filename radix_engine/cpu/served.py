"""A Llama-family model on the compiled kernels."""

from __future__ import annotations

from radix_engine.cpu.library import Kernels
from radix_engine.cpu.packing import PackedMatrix
from radix_engine.cpu.runner import BLOCK_SIZE, CpuRunner
from radix_engine.model.served import Runner, ServedModel
from radix_engine.model.weights import LoadedModel


def cpu_model(
    model: LoadedModel[PackedMatrix], kernels: Kernels, kv_type: str, threads: int
) -> ServedModel:
    """``threads``: at most so many, fewer while others need the processors."""

    def make_runner(num_blocks: int, block_size: int) -> Runner:
        if block_size != BLOCK_SIZE:
            raise ValueError(f"the kernels need blocks of {BLOCK_SIZE} tokens, not {block_size}")
        return CpuRunner(model, kernels, num_blocks, kv_type=kv_type, threads=threads)

    weights = model.layers[0].qkv.format
    fast = kernels.kind.bf16 and weights == "bf16"
    return ServedModel(
        name=model.name,
        vocab_size=model.config.vocab_size,
        context_length=model.config.context_length,
        weights=weights,
        kv_dtype=kv_type,
        kernels=kernels.name,
        exact=True,
        eos_token_ids=model.eos_token_ids,
        sampling=model.sampling,
        load_seconds=model.load_seconds,
        make_runner=make_runner,
        step_tokens=512 if fast else 256,
    )
