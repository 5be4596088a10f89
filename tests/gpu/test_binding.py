"""The fake and the product call what the real package has, by the names that it has."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import tempfile
import tomllib
from pathlib import Path

import pytest
import torch

from radix_engine.gpu.ops import FlashInferOps
from radix_engine.model.config import parse_config
from tests.gpu.binding import bound, real_flashinfer, real_signatures
from tests.gpu.fake_flashinfer import FUNCTIONS, METHODS, WRAPPERS, make_fake

ROOT = Path(__file__).resolve().parents[2]


class Toy:
    """Stands for a flashinfer: a function, a wrapper and a constant."""

    version = "1"

    class Wrapper:
        def __init__(self, size: int) -> None:
            self.size = size

        def plan(self, *args: int, **kwargs: int) -> int:
            return self.size

        def other(self) -> None: ...

    @staticmethod
    def double(x: int, *, twice: bool = False) -> int:
        return 4 * x if twice else 2 * x

    @staticmethod
    def unknown() -> None: ...


def signature_of(*names: str) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(name, kind) for name in names])


TOY_SIGNATURES = {
    "double": signature_of("x"),
    "Wrapper.__init__": signature_of("size"),
    "Wrapper.plan": signature_of("first", "second"),
}


def test_a_call_that_fits_goes_through_and_is_counted() -> None:
    toy = bound(Toy, TOY_SIGNATURES)
    assert toy.double(3) == 6
    assert toy.double(x=4) == 8
    wrapper = toy.Wrapper(5)
    assert wrapper.plan(1, second=2) == 5
    assert toy.bound == {"double": 2, "Wrapper.__init__": 1, "Wrapper.plan": 1}


def test_a_call_that_does_not_fit_raises_and_is_not_made() -> None:
    toy = bound(Toy, TOY_SIGNATURES)
    with pytest.raises(TypeError, match=r"flashinfer\.double: got an unexpected .*'twice'"):
        toy.double(3, twice=True)  # the module itself would take it
    with pytest.raises(TypeError, match="missing a required argument: 'size'"):
        toy.Wrapper()
    with pytest.raises(TypeError, match="missing a required argument: 'second'"):
        toy.Wrapper(1).plan(1)
    assert toy.bound == {"Wrapper.__init__": 1}


def test_a_name_without_a_signature_cannot_be_used() -> None:
    toy = bound(Toy, TOY_SIGNATURES)
    with pytest.raises(AttributeError, match="unknown is not among the signatures"):
        toy.unknown()
    with pytest.raises(AttributeError, match=r"Wrapper\.other is not among the signatures"):
        toy.Wrapper(1).other()


def test_what_is_no_call_is_the_modules_own() -> None:
    toy = bound(Toy, TOY_SIGNATURES)
    assert toy.version == "1"
    wrapper = toy.Wrapper(1)
    wrapper.size = 7
    assert wrapper.plan(1, 2) == 7  # set on the wrapper itself
    assert wrapper.size == 7


def test_the_pinned_versions_are_the_installed_ones() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = dict(pin.split("==") for pin in project["optional-dependencies"]["gpu"])
    assert {name: importlib.metadata.version(name) for name in pins} == pins


def test_signatures_are_of_the_real_arguments() -> None:
    signatures = real_signatures()
    assert len(signatures) == len(FUNCTIONS) + len(METHODS) * len(WRAPPERS)
    # Decode's plan takes **kwargs; its true arguments are those of what it passes them on to.
    plan = signatures["BatchDecodeWithPagedKVCacheWrapper.plan"].parameters
    assert list(plan)[:3] == ["indptr", "indices", "last_page_len"]
    assert "q_data_type" in plan
    assert "kwargs" not in plan
    # No wrapper for graphs lets its caller name a backend.
    made = signatures["CUDAGraphBatchDecodeWithPagedKVCacheWrapper.__init__"].parameters
    assert "backend" not in made


def fake_signatures() -> dict[str, inspect.Signature]:
    found = {f.__name__: inspect.signature(f) for f in FUNCTIONS}
    for wrapper in WRAPPERS:
        for method in METHODS:
            whole = inspect.signature(getattr(wrapper, method))
            _, *parameters = whole.parameters.values()
            found[f"{wrapper.__name__}.{method}"] = whole.replace(parameters=parameters)
    return found


@pytest.mark.parametrize("name", list(fake_signatures()))
def test_the_fake_takes_nothing_that_the_real_one_does_not(name: str) -> None:
    fake = fake_signatures()[name].parameters
    real = real_signatures()[name].parameters
    assert fake.keys() <= real.keys()
    needed = [key for key, parameter in real.items() if parameter.default is parameter.empty]
    assert set(needed) <= fake.keys()

    # By position it takes the same ones in the same order.
    by_position = [key for key, p in fake.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert by_position == list(real)[: len(by_position)]
    assert all(real[key].kind is not inspect.Parameter.KEYWORD_ONLY for key in by_position)

    # The dtypes must be given, so the fake's default for them is a value that it refuses.
    for key in fake.keys() - {"q_data_type"}:
        assert fake[key].default == real[key].default, key


def test_the_fake_can_be_bound() -> None:
    fake = make_fake()
    flashinfer = bound(fake, real_signatures())
    flashinfer.rmsnorm(torch.ones(1, 8), torch.ones(8), 1e-5)
    workspace = torch.empty(8, dtype=torch.uint8)
    flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", backend="fa2")
    cascade = flashinfer.MultiLevelCascadeAttentionWrapper(2, workspace, "NHD")
    for wrapper in cascade._batch_prefill_wrappers:
        wrapper._backend = "fa2"
    assert flashinfer.bound == fake.calls
    assert sum(fake.calls.values()) == 3
    with pytest.raises(TypeError, match=r"flashinfer\.rmsnorm"):
        flashinfer.rmsnorm(torch.ones(1, 8), torch.ones(8), epsilon=1e-5)


def test_the_operations_fit_the_real_package() -> None:
    flashinfer = bound(make_fake(), real_signatures())
    ops = FlashInferOps(flashinfer)
    config = parse_config(
        {
            "model_type": "llama",
            "hidden_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 64,
            "intermediate_size": 96,
            "vocab_size": 32,
            "max_position_embeddings": 8,
        }
    )
    rows, weight = torch.ones(2, 8), torch.ones(8)
    ops.rms_norm(rows, weight, 1e-5)
    ops.add_rms_norm(rows.clone(), rows, weight, 1e-5)
    ops.silu_and_mul(rows)
    rotate = ops.rope(config, torch.device("cpu"))
    rotate(torch.ones(2, 4, 64), torch.ones(2, 2, 64), torch.tensor([0, 7], dtype=torch.int32))
    assert flashinfer.bound == {
        "rmsnorm": 1,
        "fused_add_rmsnorm": 1,
        "silu_and_mul": 1,
        "apply_rope_with_cos_sin_cache_inplace": 1,
    }


def test_the_real_package_writes_into_a_temporary_folder() -> None:
    real_flashinfer()
    folder = importlib.import_module("flashinfer.jit.env").FLASHINFER_WORKSPACE_DIR
    assert folder.is_relative_to(tempfile.gettempdir())
    assert not folder.is_relative_to(Path.home() / ".cache")
