"""Which models can be divided among processes, and with which options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.gpu.fit import GpuFacts
from radix_engine.gpu.sizing import step_bytes, weight_bytes
from radix_engine.model.config import read_config
from radix_engine.model.errors import ModelError
from radix_engine.model.source import ModelFolder
from radix_engine.model.transformers_config import TransformersConfig
from radix_engine.parallel.group import Group
from radix_engine.parallel.shard import local_config
from server import EngineOptions
from server.config.command import parse
from server.gpu_choice import GpuWay
from server.loading import load_parts
from server.model_choice import choose, with_gpu
from server.parallel_choice import refuse_for_several
from tests.server.dividing import options, threads_kept
from tests.server.gpus import GIB, H200, memory_of
from tests.tiny import make_tiny_folder


def test_the_number_of_processes_is_an_option() -> None:
    assert parse([]).engine.tensor_parallel == 1
    assert parse(["--tensor-parallel", "4"]).engine.tensor_parallel == 4
    for size in (0, 3, 16):
        with pytest.raises(ValueError, match=rf"tensor_parallel .* 1, 2, 4, 8, not {size}"):
            EngineOptions(tensor_parallel=size)


def test_how_long_a_step_may_take_is_an_option(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds in (0.5, 90_000, float("nan")):
        with pytest.raises(ValueError, match=r"step_timeout_s .* 1 and 86400, not"):
            EngineOptions(step_timeout_s=seconds)
    groups: list[Group] = []

    class Counted(Group):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(1, *args[1:], **kwargs)
            groups.append(self)

    monkeypatch.setattr("server.parallel_choice.Group", Counted)
    wanted = options(step_timeout_s=77.0)
    with threads_kept():
        model = choose(ModelFolder(tiny_folder, "tiny"), wanted, 2, GpuFacts()).load(None)
        assert model.processes is not None
        model.processes.close()
    assert [group._step_timeout_s for group in groups] == [77.0]


def test_a_number_that_does_not_divide_the_heads_is_refused_by_name(tmp_path: Path) -> None:
    folder = make_tiny_folder(
        tmp_path, tokenizer=True, num_attention_heads=3, num_key_value_heads=3
    )
    with (
        threads_kept(),
        pytest.raises(ModelError, match=r"num_key_value_heads 3 cannot .* 2 processes; .*: 1$"),
    ):
        load_parts(options(model=str(folder)))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"exact": True}, "--exact"),
        ({"quantization": "int4"}, "--quantization int4"),
        ({"kv_dtype": "int8"}, "--kv-dtype int8"),
        ({"kernels": "avx2"}, "--kernels avx2"),
    ],
)
def test_what_needs_the_compiled_kernels_is_refused_by_name(
    fields: dict[str, Any], name: str
) -> None:
    refuse_for_several(options(tensor_parallel=1, **fields))
    with pytest.raises(ValueError, match=rf"^{name} needs .*--tensor-parallel 2"):
        load_parts(options(model="nowhere", **fields))


def test_k_and_v_in_another_type_than_the_weights_are_refused(tiny_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"--kv-dtype bf16 needs .*--tensor-parallel 2"):
        choose(ModelFolder(tiny_folder, "tiny"), options(kv_dtype="bf16"), 2, GpuFacts())


def test_a_model_for_transformers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.model_choice.choose_forward", lambda _: "transformers")
    found = TransformersConfig("gpt2", 128, 64)
    monkeypatch.setattr("server.model_choice.read_transformers_config", lambda _: found)
    with pytest.raises(ValueError, match="--tensor-parallel 2 is for models of the Llama family"):
        choose(ModelFolder(tmp_path, "tiny"), options(), 2, GpuFacts())


def test_each_process_needs_a_gpu_where_there_are_any(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, wanted = ModelFolder(tiny_folder, "tiny"), options(tensor_parallel=2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"--tensor-parallel 2 needs 2 GPUs, .* sees 1"):
        choose(model, wanted, 2, H200)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    # K and V of one of 2 heads of 16, in 2 layers, of a block, on each GPU.
    assert choose(model, wanted, 2, H200).kv_bytes_per_block == 2 * 1 * 16 * 2 * 4 * 16


def test_flashinfer_must_fit_the_part_of_each_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_tiny_folder(tmp_path, head_dim=64, intermediate_size=24)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    wanted = options(dtype="bf16", attention="flashinfer")
    with pytest.raises(ValueError, match="multiple of 8, and this one is 12"):
        choose(ModelFolder(folder, "tiny"), wanted, 2, H200)


def test_memory_is_that_of_each_gpu(tiny_folder: Path) -> None:
    config = read_config(tiny_folder)
    part = local_config(config, 2)
    way = GpuWay(torch.device("cpu"), torch.float32, True, "")
    choice = with_gpu(
        ModelFolder(tiny_folder, "tiny"), config, options(), way, memory_of(8 * GIB, 8 * GIB)
    )
    reserve = step_bytes(part, torch.float32, 2048, 64, flashinfer=True)
    room = int(8 * GIB * 0.9) - reserve
    assert choice.kv_memory(True) == room
    assert choice.kv_memory(False) == room - weight_bytes(part, torch.float32)
