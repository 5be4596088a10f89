"""check-gpu-offline: what can be checked without compiling FlashInfer."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.attention.flashinfer_attention import FlashInferAttention
from radix_engine.attention.flashinfer_pages import shared_pages, step_pages
from radix_engine.memory.kv_memory import KVMemory
from tests.gpu.fake_flashinfer import make_fake
from workloads.__main__ import main
from workloads.gpu import offline as gpu_offline
from workloads.gpu.offline import child_environment
from workloads.gpu.offline_cases import (
    BLOCK_SIZE,
    GRAPH_CONTEXTS,
    NUM_BLOCKS,
    Batch,
    batches,
    graph_spans,
)
from workloads.gpu.offline_launches import Group, Launch, PlanInfo, expected, step_problems
from workloads.gpu.offline_lines import Failed, lines_of
from workloads.gpu.offline_modules import kept_folder, write_package
from workloads.gpu.offline_report import Found, make_figures
from workloads.gpu.offline_stub import Stub, Watched
from workloads.gpu.offline_toolkit import (
    Missing,
    Toolkit,
    build_stubs,
    find_compiler,
    find_toolkit,
)

ATTENTION = "_ZN10flashinfer33BatchPrefillWithPagedKVCacheKernelILi1EEEvv"
APPEND = "_ZN10flashinfer24AppendPagedKVCacheKernelEv"
SPLITS = "_ZN10flashinfer39PersistentVariableLengthMergeStatesKernelEv"
LEVELS = "_ZN10flashinfer24MergeStateInPlaceKernelEv"
WHOLE, SPLIT = PlanInfo(False, 64, 0), PlanInfo(True, 512, 1024)


def make_nvcc(home: Path, release: str = "13.0") -> Path:
    """A script that answers as nvcc of a toolkit in ``home`` does."""
    nvcc = home / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then echo "Cuda compilation tools, release '
        f'{release}, V{release}.88"; else echo "#\\$ TOP={home}/bin/.." >&2; fi\n'
    )
    nvcc.chmod(0o755)
    return nvcc


def launch(kernel: str, grid: Any = (1, 1, 1), block: Any = (32, 1, 1), shared: int = 0) -> Launch:
    return Launch(kernel, grid, block, shared)


def test_nvcc_is_taken_from_cuda_home_then_path_then_packages(tmp_path: Path) -> None:
    for name in ("home", "real", "site/nvidia/cu13", "usual"):
        make_nvcc(tmp_path / name)
    # On PATH lies a script that calls the nvcc of a toolkit.
    (tmp_path / "path").mkdir()
    script = tmp_path / "path" / "nvcc"
    script.write_text(f'#!/bin/sh\nexec {tmp_path / "real" / "bin" / "nvcc"} "$@"\n')
    script.chmod(0o755)
    packages, usual, nowhere = [str(tmp_path / "site")], tmp_path / "usual", str(tmp_path)
    path = f"{tmp_path / 'path'}:/bin:/usr/bin"

    def found(environment: dict[str, str], packages: list[str] = packages) -> Path:
        return find_toolkit(environment, packages, usual).home

    assert found({"CUDA_HOME": str(tmp_path / "home"), "PATH": path}) == tmp_path / "home"
    assert found({"CUDA_HOME": nowhere, "PATH": path}) == tmp_path / "real"
    assert found({"PATH": nowhere}) == tmp_path / "site/nvidia/cu13"
    assert found({"PATH": nowhere}, []) == tmp_path / "usual"
    assert find_toolkit({"PATH": nowhere}, [], usual) == Toolkit(tmp_path / "usual", "13.0")


def test_without_nvcc_the_command_says_in_one_line_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find() -> Toolkit:
        return find_toolkit({"PATH": str(tmp_path)}, [str(tmp_path)], tmp_path)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu_offline, "find_toolkit", find)
    assert main(["check-gpu-offline"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert "no nvcc in CUDA_HOME, on PATH" in shown.err
    assert "pip install 'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*'" in shown.err
    assert list(tmp_path.iterdir()) == []


def test_what_children_inherit_makes_flashinfer_compile_for_one_card_into_one_folder() -> None:
    base = {
        "PATH": "/usr/bin",
        "FLASHINFER_DISABLE_JIT": "1",
        "LD_BIND_NOW": "1",
        "CUDA_HOME": "/old",
        "KEPT": "yes",
    }
    toolkit, ninja = Toolkit(Path("/cuda"), "13.0"), Path("/venv/bin/ninja")
    made = child_environment(base, Path("/kept here"), toolkit, ninja, 3)
    assert made["KEPT"] == "yes"
    assert made["PATH"] == "/usr/bin:/venv/bin"
    assert (made["CUDA_HOME"], made["MAX_JOBS"]) == ("/cuda", "3")
    assert made["FLASHINFER_CUDA_ARCH_LIST"] == "9.0a"
    assert made["FLASHINFER_EXTRA_LDFLAGS"] == "'-L/kept here/stubs'"
    assert not {"FLASHINFER_DISABLE_JIT", "LD_BIND_NOW"} & made.keys()
    assert Path(made["PYTHONPATH"].split(":")[0], "workloads").is_dir()


def test_modules_are_kept_by_version_in_a_package_that_flashinfer_takes(tmp_path: Path) -> None:
    folder = kept_folder(tmp_path, "0.6.18.post1", "0.1.15", "13.0")
    assert folder == tmp_path / "0.6.18.post1-ffi0.1.15-cu130-sm90a"
    modules = write_package(folder, "0.6.18.post1", "13.0")
    package: dict[str, Any] = {"__file__": str(folder / "flashinfer_jit_cache" / "__init__.py")}
    exec((folder / "flashinfer_jit_cache" / "__init__.py").read_text(), package)
    assert package["__version__"] == "0.6.18.post1+cu130"
    assert Path(package["get_jit_cache_dir"]()) == modules
    assert modules.is_dir()


def test_the_stand_in_answers_as_the_card_and_records_launches_and_copies(tmp_path: Path) -> None:
    # A release that no library has, so that nobody in this process takes it for the real one.
    built = build_stubs(tmp_path, Toolkit(Path("/cuda"), "0.0"), find_compiler())
    stub = Stub(*built, mode=os.RTLD_LOCAL)
    library = ctypes.CDLL(str(built[0]))
    value = ctypes.c_int()
    for attribute, expected_value in ((16, 132), (75, 9), (76, 0), (97, 232_448)):
        assert library.cudaDeviceGetAttribute(ctypes.byref(value), attribute, 0) == 0
        assert value.value == expected_value
    assert library.cudaDeviceGetAttribute(ctypes.byref(value), 9999, 0) != 0

    class Dim3(ctypes.Structure):
        _fields_ = tuple((axis, ctypes.c_uint) for axis in "xyz")

    address, shared = ctypes.c_void_p(64), ctypes.c_size_t(48)
    library.__cudaRegisterFunction(None, address, None, b"kernel", -1, *(None,) * 5)
    library.__cudaLaunchKernel(address, Dim3(5, 1, 2), Dim3(32, 4, 1), None, shared, None)
    source, target = ctypes.create_string_buffer(b"copied"), ctypes.create_string_buffer(7)
    library.cudaMemcpyAsync(target, source, ctypes.c_size_t(7), 1, None)
    assert target.value == b"copied"
    assert stub.launches() == [launch("kernel", (5, 1, 2), (32, 4, 1), 48)]
    assert stub.copies == 1
    stub.reset()
    assert (stub.launches(), stub.copies) == ([], 0)


def test_launches_are_told_apart_by_their_kernels() -> None:
    kinds = [launch(name).kind for name in (APPEND, ATTENTION, SPLITS, LEVELS, "memset")]
    assert kinds == ["append", "attention", "merge of splits", "merge of levels", "other"]
    assert launch(ATTENTION.replace("Prefill", "Decode")).kind == "attention"


@pytest.mark.parametrize(
    ("fits", "does_not"),
    [
        (launch("", block=(32, 32, 1)), launch("", block=(32, 33, 1))),
        (launch("", grid=(1, 65_535, 1)), launch("", grid=(1, 65_536, 1))),
        (launch("", grid=(65_536, 1, 1)), launch("", grid=(0, 1, 1))),
        (launch("", shared=232_448), launch("", shared=232_449)),
    ],
)
def test_launches_that_the_card_would_refuse_are_known(fits: Launch, does_not: Launch) -> None:
    assert fits.fits
    assert not does_not.fits


def test_a_plan_tells_how_much_of_the_workspace_it_uses() -> None:
    # 64 heads, 32 tiles of 16 rows: values of 128 dimensions, then sums, 4 bytes each.
    sums_at = 64 * 32 * 16 * 128 * 4
    tensor_cores = [32, 16, 0, 16, 0, 1, 2, 3, 4, 5, 0, sums_at, 6, 0, 1]
    info = PlanInfo.read(tensor_cores)
    assert info == PlanInfo(split=True, rows=512, sums_at=16_777_216)
    assert info.workspace_bytes(64) == 16_777_216 + 131_072
    assert PlanInfo.read([*tensor_cores[:-1], 0]).workspace_bytes(64) == 0
    # Without tensor cores a tile is one row: 9 heads of 64, 100 rows.
    info = PlanInfo.read([100, 0, 9 * 100 * 64 * 4, 1, 2, 3, 4, 5, 0, 1])
    assert info.workspace_bytes(9) == 230_400 + 3_600
    with pytest.raises(ValueError, match="10 or 15 integers"):
        PlanInfo.read([1, 2, 3])


def test_a_step_makes_an_append_and_an_attention_a_layer_and_merges_what_was_split() -> None:
    assert expected([Group(4, (WHOLE,))]) == {"append": 4, "attention": 4}
    assert expected([Group(2, (SPLIT,)), Group(2, (WHOLE, SPLIT))]) == {
        "append": 4,
        "attention": 6,
        "merge of splits": 4,
        "merge of levels": 2,
    }


def test_what_a_step_does_wrong_is_said() -> None:
    groups = [Group(2, (SPLIT,))]
    good = [launch(name) for name in (APPEND, ATTENTION, SPLITS)] * 2
    assert step_problems(good, groups, copies=1, windows=1) == []
    assert step_problems(good[:-1], groups, 1, 1) == ["1 launches of merge of splits, not 2"]
    assert step_problems([*good, launch("memset")], groups, 1, 1) == ["1 launches of other, not 0"]
    assert step_problems(good, groups, 2, 1) == ["2 copies of plans, not 1"]
    # Planned again for each layer, though both have the same window.
    again = [Group(1, (SPLIT,)), Group(1, (SPLIT,))]
    assert step_problems(good, again, 2, 1) == ["2 plans for 1 windows"]
    large = [good[0]._replace(grid=(1, 1, 70_000)), *good[1:]]
    (problem,) = step_problems(large, groups, 1, 1)
    assert problem.startswith("the card would refuse")


def test_only_cascades_share_blocks_and_all_steps_are_of_their_kind() -> None:
    made = batches()
    assert {batch.kind for batch in made} == {"decode", "prefill", "cascade"}
    for batch in made:
        pages = step_pages(batch.attention_spans(), BLOCK_SIZE, NUM_BLOCKS)
        assert shared_pages(pages) == batch.shared // BLOCK_SIZE
        assert (batch.shared > 0) == (batch.kind == "cascade")
        assert pages.decode_only or batch.kind != "decode"
        assert int(pages.contexts.max()) == batch.longest
        assert pages.num_tokens == batch.num_tokens <= 2048
    assert Batch("cascade", "", ((63, 1), (0, 9)), 256).longest == 320


def test_graphs_are_planned_for_each_context_and_for_all_together() -> None:
    spans = graph_spans(3)
    contexts = {name: [span.context for span in made] for name, made in spans.items()}
    assert contexts["8192"] == [8192] * 3
    assert contexts["mixed"] == [1, 16, 17]
    assert len(contexts) == len(GRAPH_CONTEXTS) + 1
    for made in spans.values():
        assert step_pages(made, BLOCK_SIZE, NUM_BLOCKS).decode_only


def test_plans_of_the_wrappers_are_watched() -> None:
    watched = Watched(make_fake())
    memory = KVMemory(3, NUM_BLOCKS, BLOCK_SIZE, 2, 64, torch.float32)
    attention = FlashInferAttention(memory, 4, watched, workspace_bytes=1024)
    plan = attention.plan(Batch("decode", "", ((40, 1), (20, 1))).attention_spans())
    tensors = [torch.zeros(2, heads, 64) for heads in (4, 2, 2)]
    for layer, window in enumerate((None, 8, None)):
        plan.attend(layer, *tensors, window=window)
    assert len(watched.planned) == len(watched.plan_us) == 2
    assert min(watched.plan_us) > 0
    watched.reset()
    assert (watched.planned, watched.plan_us) == ([], [])


def found_lines(problem: str | None = None) -> Found:
    found, problems = Found(), [problem] if problem else []
    step = {"plans": 1, "windows": 1, "attention_launches": 4, "plan_us": 250.5}
    shape = "Llama-3.1-70B"
    found.add(
        {
            **step,
            **{"shape": "Llama-3.1-8B", "kind": "decode", "batch": "64 of 8k"},
            **{"workspace_bytes": 3 * 2**20, "problems": problems},
        }
    )
    found.add(
        {"shape": shape, "graph": 8, "steps_planned": 10, "workspace_bytes": 2**20, "problems": []}
    )
    found.add({"shape": shape, "least_workspace": 2**20, "problems": []})
    found.add({"asked": ["page"], "outside": []})
    return found


def test_figures_name_failures_workspaces_and_times() -> None:
    figures = make_figures(found_lines())
    values = {key: figure.value for key, figure in figures.items()}
    assert values == {
        "failures": 0,
        "steps": 1,
        "graph_sizes": 1,
        "graph_sizes_failed": 0,
        "modules_outside_the_list": 0,
        "workspace_8b_mib": 3,
        "workspace_70b_mib": 1,
        "plan_decode_64_us": 250.5,
    }
    assert figures["workspace_8b_mib"].goal == 256


@pytest.mark.parametrize("problem", [None, "2 plans for 1 windows"])
def test_the_status_says_whether_a_check_failed(
    problem: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(gpu_offline, "run_checks", lambda jobs: found_lines(problem))
    status = main(["check-gpu-offline", "--output", str(tmp_path)])
    shown = capsys.readouterr().out
    assert status == (0 if problem is None else 1)
    line = "FAILED Llama-3.1-8B, decode 64 of 8k: 2 plans for 1 windows"
    assert (line in shown) == (problem is not None)
    assert (tmp_path / "check-gpu-offline.json").exists()


def test_a_module_outside_the_list_is_a_failure() -> None:
    found = found_lines("planned twice")
    found.outside.append("norm")
    assert found.problems == [
        "Llama-3.1-8B, decode 64 of 8k: planned twice",
        "asked for a module outside the list: norm",
    ]
    assert make_figures(found)["failures"].value == 2


def test_what_a_process_says_comes_line_by_line_and_its_end_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "talker.py").write_text(
        "import sys\nprint('{\"a\": 1}')\nprint(sys.argv[1])\n"
        "print('trouble', file=sys.stderr)\nsys.exit(int(sys.argv[2]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    log = tmp_path / "log"

    def said(second: str, status: str) -> list[dict[str, Any]]:
        return list(lines_of("talker", [second, status], environment, log))

    assert said('{"b": 2}', "0") == [{"a": 1}, {"b": 2}]
    with pytest.raises(Failed, match="no such thing"):
        said('{"error": "no such thing"}', "1")
    with pytest.raises(Failed, match=r"status 3; the end of .*\n  trouble"):
        said("{}", "3")


def test_what_is_not_installed_is_named() -> None:
    with pytest.raises(Missing, match="no-such-package is not installed; make test installs it"):
        gpu_offline._installed("no-such-package")
