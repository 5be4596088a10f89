"""FlashInfer's modules that check-gpu-offline compiles, and the process that compiles them.

``python -m workloads.gpu.offline_modules FOLDER`` makes FOLDER/flashinfer_jit_cache, a package in
which FlashInfer looks for compiled modules, and says on standard output what it does, one line of
JSON each. What is there already is kept.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workloads.gpu.offline_lines import fail, say, take_output

PACKAGE = "flashinfer_jit_cache"
CAPABILITY = "9.0a"


@dataclass(frozen=True, slots=True)
class Module:
    """One of FlashInfer's modules, for bf16. ``window``: with attention over a window. ``fp8``: K
    and V are in fp8."""

    kind: Literal["page", "cascade", "decode", "prefill"]
    head_dim: int = 0
    window: bool = False
    fp8: bool = False

    @property
    def label(self) -> str:
        """What it is called for people."""
        heads = f", heads of {self.head_dim}" if self.head_dim else ""
        window = ", with a window" if self.window else ""
        return f"{self.kind}{heads}{window}{', K and V in fp8' if self.fp8 else ''}"


# Decodes of groups of four and more query heads use the prefill module.
MODULES = (
    Module("page"),
    Module("cascade"),
    Module("decode", 64),
    Module("decode", 128),
    Module("prefill", 64),
    Module("prefill", 128),
    Module("prefill", 128, window=True),
    Module("decode", 128, fp8=True),
    Module("prefill", 128, fp8=True),
)


def kept_folder(build: Path, flashinfer: str, tvm_ffi: str, release: str) -> Path:
    """Where what was compiled with these versions is kept: a module fits no others."""
    name = f"{flashinfer}-ffi{tvm_ffi}-cu{release.replace('.', '')}-sm{CAPABILITY.replace('.', '')}"
    return build / name


def write_package(folder: Path, flashinfer: str, release: str) -> Path:
    """Write the package, without modules; the folder that holds these."""
    modules = folder / PACKAGE / "modules"
    modules.mkdir(parents=True, exist_ok=True)
    version = f"{flashinfer}+cu{release.replace('.', '')}"
    (folder / PACKAGE / "__init__.py").write_text(
        '"""FlashInfer\'s modules, compiled by `python -m workloads check-gpu-offline`."""\n\n'
        "from pathlib import Path\n\n"
        f'__version__ = "{version}"\n\n\n'
        "def get_jit_cache_dir() -> str:\n"
        '    return str(Path(__file__).resolve().parent / "modules")\n'
    )
    return modules


def main() -> int:
    """Compile what is missing; the exit status."""
    out = take_output()
    modules = Path(sys.argv[1])
    try:
        check_torch()
        wanted = [(module, specification(module)) for module in MODULES]
        for module, spec in wanted:
            kept = modules / spec.name / f"{spec.name}.so"
            say(out, module=module.label, name=spec.name, kept=kept.exists())
            began = time.perf_counter()
            if not kept.exists():
                spec.build(verbose=False)
                kept.parent.mkdir(exist_ok=True)
                # Whole or not at all, should this be stopped.
                half = kept.with_suffix(".half")
                shutil.copyfile(spec.jit_library_path, half)
                os.replace(half, kept)
            say(out, done=spec.name, seconds=time.perf_counter() - began)
    except Exception as error:  # whatever FlashInfer or its tools raise
        return fail(out, error)
    return 0


def check_torch() -> None:
    """Raise RuntimeError where torch brings a CUDA runtime of its own."""
    import torch

    if torch.version.cuda is not None:
        raise RuntimeError(
            "torch is built with CUDA, whose own runtime would answer instead of the stand-in; run "
            "this in an environment without it: make setup, without GPU=1"
        )


def specification(module: Module) -> Any:
    """FlashInfer's specification of a module; imports FlashInfer."""
    import torch

    from radix_engine.memory.fp8 import FP8

    jit = {
        name: importlib.import_module(f"flashinfer.jit.{name}")
        for name in ("page", "cascade", "attention.modules")
    }
    if module.kind == "page":
        return jit["page"].gen_page_module()
    if module.kind == "cascade":
        return jit["cascade"].gen_cascade_module()
    stored = FP8 if module.fp8 else torch.bfloat16
    types = (torch.bfloat16, stored, torch.bfloat16, torch.int32)
    # No position encoding, a window or not, no soft cap.
    rest = (module.head_dim, module.head_dim, 0, module.window, False)
    attention = jit["attention.modules"]
    if module.kind == "decode":
        return attention.gen_batch_decode_module(*types, *rest)
    return attention.gen_batch_prefill_module("fa2", *types, *rest, False)


if __name__ == "__main__":
    sys.exit(main())
