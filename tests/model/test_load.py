"""Loading weights: sharded files, dtypes, and what is missing or wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from radix_engine.model import linear
from radix_engine.model.errors import ModelError
from radix_engine.model.linear import TorchPacking, can_pack, make_linear, pick_dtype
from radix_engine.model.load import load_model
from radix_engine.model.runner import ModelRunner
from radix_engine.model.source import ModelFolder
from radix_engine.model.weights import MatrixSource, Role
from tests.model.helpers import logits_of, random_tokens
from tests.tiny import IM_END, make_tiny_folder


def logits(folder: Path, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    model = load_model(ModelFolder(folder, "tiny"), TorchPacking(dtype))
    return logits_of(ModelRunner(model, 4), random_tokens(20), [2, 1])


def change(folder: Path, **tensors: torch.Tensor | None) -> None:
    weights = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        del weights[name]
        if tensor is not None:
            weights[name] = tensor
    save_file(weights, folder / "model.safetensors")


def overwrite(path: Path) -> None:
    """Fill the very file that is there with zeros; who has it mapped sees them."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(bytes(size))


def test_a_sharded_model_loads_as_the_whole_one(tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path)
    expected = logits(folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    weight_map: dict[str, str] = {}
    for i, part in enumerate((names[:5], names[5:])):
        file = f"model-0000{i}-of-00002.safetensors"
        save_file({name: weights[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert torch.equal(logits(folder), expected)

    (folder / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model-00001-of-00002\.safetensors is missing"):
        logits(folder)


def test_loading_reports_eos_ids_time_and_progress(tmp_path: Path) -> None:
    seen = []
    model = load_model(
        ModelFolder(make_tiny_folder(tmp_path), "tiny"),
        TorchPacking(torch.float32),
        progress=lambda done, of: seen.append((done, of)),
    )
    assert seen == [(1, 2), (2, 2)]
    assert model.eos_token_ids == {IM_END}
    assert model.name == "tiny"
    assert model.load_seconds > 0


def test_weights_of_another_dtype_are_converted(tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path)
    weights = load_file(folder / "model.safetensors")
    halved = {name: tensor.to(torch.bfloat16) for name, tensor in weights.items()}
    save_file({n: t.to(torch.float32) for n, t in halved.items()}, folder / "model.safetensors")
    expected = logits(folder)
    save_file(halved, folder / "model.safetensors")
    assert torch.equal(logits(folder), expected)


def test_a_loaded_model_does_not_need_its_files_any_more(tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path)
    runner = ModelRunner(load_model(ModelFolder(folder, "tiny"), TorchPacking(torch.float32)), 4)
    before = logits_of(runner, random_tokens(20), [0, 1])
    overwrite(folder / "model.safetensors")
    assert torch.equal(logits_of(runner, random_tokens(20), [0, 1]), before)


def test_without_packed_products_a_model_does_not_need_its_files_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "can_pack", lambda dtype, device: False)
    folder = make_tiny_folder(tmp_path)
    model = load_model(ModelFolder(folder, "tiny"), TorchPacking(torch.float32))
    assert not model.layers[0].down.packed
    before = logits_of(ModelRunner(model, 4), random_tokens(20), [0, 1])
    overwrite(folder / "model.safetensors")
    assert torch.equal(logits_of(ModelRunner(model, 4), random_tokens(20), [0, 1]), before)
    # A head that is the embedding again takes no memory of its own.
    assert model.head.weight.data_ptr() == model.embedding.data_ptr()


@dataclass(frozen=True)
class Recording:
    """A packing that keeps what it was asked for."""

    seen: list[tuple[str, list[tuple[int, int]], torch.Tensor | None]]
    dtype: torch.dtype = torch.bfloat16

    def pack(
        self, role: Role, parts: Sequence[MatrixSource], bias: torch.Tensor | None
    ) -> list[torch.Tensor]:
        self.seen.append((role, [part.shape for part in parts], bias))
        return [part.dense(torch.float32).clone() for part in parts]


def test_each_matrix_is_packed_once_with_its_role_parts_and_bias(tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path, "qwen2", intermediate_size=112)
    recording = Recording([])
    model = load_model(ModelFolder(folder, "tiny"), recording)
    layer = [
        ("qkv", [(64, 64), (32, 64), (32, 64)]),
        ("output", [(64, 64)]),
        ("gate_up", [(112, 64), (112, 64)]),
        ("down", [(64, 112)]),
    ]
    asked = [(role, shapes) for role, shapes, _ in recording.seen]
    assert asked == [*layer, *layer, ("head", [(512, 64)])]

    weights = load_file(folder / "model.safetensors")
    parts = [f"model.layers.1.self_attn.{part}_proj" for part in "qkv"]
    bias = recording.seen[4][2]
    assert bias is not None
    assert torch.equal(bias, torch.cat([weights[f"{part}.bias"] for part in parts]))
    for packed, part in zip(model.layers[1].qkv, parts, strict=True):
        assert torch.equal(packed, weights[f"{part}.weight"])
    assert recording.seen[1][2] is None
    assert (model.dtype, model.embedding.dtype) == (torch.bfloat16, torch.bfloat16)
    assert torch.equal(model.head[0], weights["model.embed_tokens.weight"])


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path)
    change(folder, **{"model.layers.1.mlp.up_proj.weight": None})
    with pytest.raises(ModelError, match=r"tensor model\.layers\.1\.mlp\.up_proj\.weight is miss"):
        logits(folder)


def test_a_wrongly_shaped_tensor_is_named_with_both_shapes(tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path)
    change(folder, **{"model.layers.0.self_attn.k_proj.weight": torch.zeros(16, 64)})
    message = r"k_proj\.weight has the shape \[16, 64\], but config.json asks for \[32, 64\]"
    with pytest.raises(ModelError, match=message):
        logits(folder)


def test_a_tensor_of_whole_numbers_is_refused(tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path)
    change(folder, **{"model.norm.weight": torch.ones(64, dtype=torch.int32)})
    with pytest.raises(ModelError, match=r"model\.norm\.weight holds torch\.int32"):
        logits(folder)


def test_untied_embeddings_need_a_head(tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path, tie_word_embeddings=False)
    change(folder, **{"lm_head.weight": None})
    with pytest.raises(ModelError, match=r"tensor lm_head\.weight is missing"):
        logits(folder)


def test_a_folder_without_weights_and_a_damaged_file_are_refused(tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path)
    (folder / "model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(ModelError, match=r"model\.safetensors cannot be read"):
        logits(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="holds no weights"):
        logits(folder)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("biased", [True, False])
def test_a_packed_product_equals_the_plain_one(dtype: torch.dtype, rows: int, biased: bool) -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(48, 32, dtype=dtype), torch.randn(rows, 32, dtype=dtype)
    bias = torch.randn(48, dtype=dtype) if biased else None
    product = make_linear(weight, bias)
    assert product.packed == can_pack(dtype, torch.device("cpu"))
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    tolerance = 1e-4 if dtype == torch.float32 else 0.2
    torch.testing.assert_close(product(x).double(), expected, rtol=0, atol=tolerance)


def test_dtypes_have_names() -> None:
    assert pick_dtype("fp32") == torch.float32
    assert pick_dtype("bf16") == torch.bfloat16
    assert pick_dtype("auto") in (torch.float32, torch.bfloat16)
    with pytest.raises(ValueError, match="dtype must be auto, fp32 or bf16, not 'int3'"):
        pick_dtype("int3")
