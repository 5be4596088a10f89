"""Turning a GGUF file into a model folder: float32 safetensors, configuration and tokenizer.

transformers reads the file, so its model classes are imported here and only here: a model that has
been converted once is served without them.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from radix_engine.model.config import SUPPORTED_MODEL_TYPES, read_json
from radix_engine.model.errors import ModelError
from radix_engine.model.gguf_header import read_gguf_header

Say = Callable[[str], None]
"""Called with one line for the user about what is being done."""

# Folders of a conversion that was killed are removed once they are this old.
_LEFTOVER_SECONDS = 3600


def convert_gguf(
    file: Path, target: Path, say: Say, generation: Mapping[str, float] | None = None
) -> Path:
    """Convert ``file`` into the folder ``target`` and return it.

    The folder is written beside its place and renamed at the end: it is there as a whole or not at
    all, and of two conversions at once the first one counts. ``generation`` is added to
    generation_config.json, since a GGUF file has no recommended sampling. Takes seconds to a
    minute and disk space of 4 bytes a weight. Raises ModelError for a file that cannot be
    converted and for a folder that cannot be written.
    """
    header = read_gguf_header(file)
    architecture = header.get("general.architecture")
    if architecture not in SUPPORTED_MODEL_TYPES:
        supported = ", ".join(SUPPORTED_MODEL_TYPES)
        raise ModelError(
            f"{file} holds a model of architecture {architecture!r}, which is not supported; "
            f"supported: {supported}"
        )
    say(f"Converting {file.name} (once; the result is kept in {target})")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target)
        unfinished = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
    except OSError as error:
        raise ModelError(f"{target.parent} cannot be written: {error}") from error
    try:
        _write_tokenizer(file, str(header.get("tokenizer.ggml.pre", "")), unfinished, say)
        _write_weights(file, unfinished, say)
        _add_generation(unfinished / "generation_config.json", generation or {})
        unfinished.chmod(0o755)
        if not target.exists():
            unfinished.rename(target)
    except Exception as error:  # whatever a file that others wrote can set off in transformers
        if target.is_dir():
            return target  # another process was faster
        raise ModelError(f"{file} cannot be converted: {error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def _write_tokenizer(file: Path, pre_tokenizer: str, folder: Path, say: Say) -> None:
    from transformers import AutoTokenizer

    say("Converting the tokenizer")
    tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    if pre_tokenizer == "smollm":
        _split_digits(tokenizer.backend_tokenizer)
    tokenizer.save_pretrained(folder, save_jinja_files=False)


def _split_digits(backend: Any) -> None:
    """Put each digit into a word of its own before all else, as SmolLM's tokenizer does.

    transformers leaves this out when it reads the file.
    """
    from tokenizers import pre_tokenizers

    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), backend.pre_tokenizer]
    )


def _write_weights(file: Path, folder: Path, say: Say) -> None:
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    say("Reading the weights")
    model: Any = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    say("Writing the weights as float32")
    model.save_pretrained(folder)


def _add_generation(path: Path, values: Mapping[str, float]) -> None:
    merged = (read_json(path) if path.is_file() else {}) | dict(values)
    path.write_text(json.dumps(merged, indent=2) + "\n", encoding="utf-8")


def _prefix(target: Path) -> str:
    return f".{target.name}.unfinished-"


def _remove_leftovers(target: Path) -> None:
    for folder in target.parent.glob(f"{_prefix(target)}*"):
        if time.time() - folder.stat().st_mtime > _LEFTOVER_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
