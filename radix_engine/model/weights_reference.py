"""Where a model folder's weights lie when they are in a GGUF file: ``gguf.json``."""

from __future__ import annotations

import json
from pathlib import Path

from radix_engine.model.config import read_json
from radix_engine.model.errors import ModelError

REFERENCE = "gguf.json"


def write_reference(folder: Path, file: Path) -> None:
    """Let ``folder`` refer to ``file``: by its name where it lies in the folder, else by its path
    and the time of its last change; and by its size."""
    inside = file.parent == folder
    stat = file.stat()
    reference: dict[str, str | int] = {
        "file": file.name if inside else str(file.resolve()),
        "size": stat.st_size,
    }
    if not inside:  # a copy of the folder has files of another time
        reference["modified_ns"] = stat.st_mtime_ns
    (folder / REFERENCE).write_text(json.dumps(reference, indent=2) + "\n", encoding="utf-8")


def read_reference(folder: Path) -> Path | None:
    """The file that ``folder`` refers to; None where its weights are safetensors.

    Raises ModelError when the file is gone, or is not the one that the folder was made for.
    """
    if not (folder / REFERENCE).is_file():
        return None
    reference = read_json(folder / REFERENCE)
    name, size = reference.get("file"), reference.get("size")
    if not isinstance(name, str) or not isinstance(size, int):
        raise ModelError(f"{folder / REFERENCE} does not name a file and its size")
    file = folder / name  # an absolute path stays as it is
    try:
        stat = file.stat()
    except OSError:
        raise ModelError(
            f"the weights of {folder} are in {file}, which is not there any more; put it back"
        ) from None
    modified = reference.get("modified_ns", stat.st_mtime_ns)
    if (stat.st_size, stat.st_mtime_ns) != (size, modified):
        raise ModelError(
            f"the weights of {folder} are in {file}, which was changed since; tokenizer and "
            f"configuration may be those of another model: serve {file} itself"
        )
    return file
