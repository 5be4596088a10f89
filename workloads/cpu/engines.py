"""How each contender is started: its model, its command line and its environment."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from radix_engine.model.config import read_config
from radix_engine.model.linear import pick_dtype
from radix_engine.model.source import ModelFolder
from server.loading import usable_processors
from workloads.cpu.cases import Contender
from workloads.cpu.http import HttpEngine
from workloads.cpu.load import EngineFailed
from workloads.cpu.options import NAME, CpuOptions
from workloads.cpu.peer_model import gguf_file, hugging_face_folder, openvino_folder
from workloads.cpu.peer_setup import SetupFailed, clean_environment, interpreter, set_up
from workloads.cpu.worker import RunningEngine, Worker
from workloads.own_server import free_port, server_command

# The first start may fetch a model and compile; vLLM compiles for minutes.
READY_LIMIT_S = 900.0
Start = Callable[[Contender], RunningEngine]


@dataclass(frozen=True, slots=True)
class Starter:
    """Starts contenders as the options say, on one model."""

    options: CpuOptions
    folder: ModelFolder

    @property
    def threads(self) -> int:
        """Threads that every engine computes with."""
        return self.options.threads or usable_processors()

    @property
    def dtype(self) -> torch.dtype:
        """The precision of all but the 4-bit contenders."""
        return pick_dtype("auto")

    def log(self, name: str) -> Path:
        """Where a contender's output goes."""
        return self.options.output / f"{NAME}-{name}.log"

    def prepare(self, peer: str) -> None:
        """Install a peer and make its form of the model. Raises SetupFailed."""
        set_up(self.options.build, peer, self.log(f"setup-{peer}"))
        self.model_of(peer)

    def model_of(self, engine: str) -> Path:
        """The model in the form that a peer reads, made where it is not there yet."""
        if engine == "llama.cpp":
            return gguf_file(self.folder).absolute()
        build = self.options.build.absolute()
        source = hugging_face_folder(self.folder, build, self.dtype)
        if engine == "vllm":
            return source
        return openvino_folder(self.folder, source, build, self.log("setup-openvino"))

    def start(self, contender: Contender) -> RunningEngine:
        """Start a contender and wait until it is ready. Raises EngineFailed."""
        try:
            if contender.engine == "ours":
                return self._ours(contender)
            if contender.engine == "vllm":
                return self._vllm(contender)
            return self._peer(contender)
        except SetupFailed as error:
            raise EngineFailed(str(error)) from error

    def _ours(self, contender: Contender) -> RunningEngine:
        quantization = "int4" if contender.bits == 4 else None
        if quantization and (missing := quantization_problem()):
            raise EngineFailed(missing)
        environment = clean_environment()
        if contender.door == "process":
            given = {
                "model": self.options.model,
                "kv_gib": self.options.kv_gib,
                "threads": self.threads,
                "cache": contender.cache,
                "quantization": quantization,
            }
            command = _worker(sys.executable, "workloads.cpu.ours", given)
            return Worker(command, self.log(contender.name), READY_LIMIT_S, environment)
        port = free_port()
        flags = ["--kv-memory", f"{self.options.kv_gib}GiB", "--threads", str(self.threads)]
        if self.options.model is not None:
            flags += ["--model", self.options.model]
        return HttpEngine(server_command(port, flags), port, self.log(contender.name), environment)

    def _peer(self, contender: Contender) -> RunningEngine:
        given = {
            "model": str(self.model_of(contender.engine)),
            "kv_gib": self.options.kv_gib,
            "threads": self.threads,
            "dtype": "bf16" if self.dtype == torch.bfloat16 else "f32",
            "cache": contender.cache,
            "context": self._context(),
        }
        module = "workloads.cpu.peer_" + contender.engine.replace(".", "_")
        python = str(interpreter(self.options.build.absolute(), contender.engine))
        command = _worker(python, module, given)
        return Worker(command, self.log(contender.name), READY_LIMIT_S, clean_environment())

    def _vllm(self, contender: Contender) -> RunningEngine:
        port = free_port()
        command, environment = self.vllm_server(port)
        return HttpEngine(command, port, self.log(contender.name), environment)

    def vllm_server(self, port: int) -> tuple[list[str], dict[str, str]]:
        """The command of vLLM's server on a port, and the environment that it needs."""
        # Its command of the name asks for a package "vllm", which is called otherwise here.
        python = interpreter(self.options.build.absolute(), "vllm")
        command = [str(python), "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", str(self.model_of("vllm")), "--host", "127.0.0.1"]
        command += ["--port", str(port), "--max-model-len", str(self._context())]
        command += ["--dtype", str(self.dtype).removeprefix("torch.")]
        environment = {
            "VLLM_CPU_KVCACHE_SPACE": str(self.options.kv_gib),
            "VLLM_CPU_OMP_THREADS_BIND": _first_processors(self.threads),
            # What it compiles at its first start.
            "VLLM_CACHE_ROOT": str(self.options.build.absolute() / "peers/vllm-cache"),
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        return command, clean_environment(environment)

    def _context(self) -> int:
        return min(read_config(self.folder.path).context_length, 8192)


def quantization_problem() -> str | None:
    """Why our engine cannot be measured in 4 bits; None where it can."""
    from server.options import EngineOptions

    if any(field.name == "quantization" for field in dataclasses.fields(EngineOptions)):
        return None
    return "the engine has no 4-bit weights yet (EngineOptions has no field quantization)"


def _worker(python: str, module: str, given: Mapping[str, Any]) -> list[str]:
    return [python, "-m", module, json.dumps(given)]


def _first_processors(count: int) -> str:
    return ",".join(map(str, sorted(os.sched_getaffinity(0))[:count]))
