"""Making a model folder for a GGUF file: configuration and tokenizer.

The weights stay in the file and are read from there at each start; the folder refers to it.
transformers reads the tokenizer, which takes seconds, so its result is kept.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from radix_engine.model.errors import ModelError
from radix_engine.model.gguf_config import config_of
from radix_engine.model.gguf_files import GGUFFiles
from radix_engine.model.gguf_header import read_gguf_header
from radix_engine.model.weights_reference import write_reference

Say = Callable[[str], None]
"""Called with one line for the user about what is being done."""

# Folders of a conversion that was killed are removed once they are this old.
_LEFTOVER_SECONDS = 3600


def convert_gguf(
    file: Path,
    target: Path,
    say: Say,
    generation: Mapping[str, float] | None = None,
    *,
    move: bool = False,
) -> Path:
    """Make the folder ``target`` for the model in ``file`` and return it.

    The folder is written beside its place and renamed at the end: it is there as a whole or not at
    all, and of two conversions at once the first one counts. With ``move`` the file itself moves
    into the folder, from the same file system. ``generation`` is added to generation_config.json,
    since a GGUF file has no recommended sampling. Takes seconds, and disk space of a few megabytes.
    Raises ModelError for a file that cannot be served and for a folder that cannot be written.
    """
    header = read_gguf_header(file)
    raw, config = config_of(file, header)
    GGUFFiles(file, header, config)  # what cannot be loaded is refused before anything is written
    say(f"Reading the tokenizer of {file.name} (once; it is kept in {target})")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target)
        unfinished = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
    except OSError as error:
        raise ModelError(f"{target.parent} cannot be written: {error}") from error
    try:
        _write_tokenizer(file, str(header.metadata.get("tokenizer.ggml.pre", "")), unfinished)
        _write_json(unfinished / "config.json", raw)
        special = {field: raw[field] for field in raw if field.endswith("_token_id")}
        _write_json(unfinished / "generation_config.json", special | dict(generation or {}))
        if move:
            file = file.rename(unfinished / file.name)
        write_reference(unfinished, file)
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


def _write_tokenizer(file: Path, pre_tokenizer: str, folder: Path) -> None:
    from transformers import AutoTokenizer

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


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _prefix(target: Path) -> str:
    return f".{target.name}.unfinished-"


def _remove_leftovers(target: Path) -> None:
    for folder in target.parent.glob(f"{_prefix(target)}*"):
        if time.time() - folder.stat().st_mtime > _LEFTOVER_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
