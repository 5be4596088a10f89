"""A GGUF file's model folder: tokenizer and configuration, whole or not at all, weights by name."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from radix_engine.model import convert
from radix_engine.model.convert import convert_gguf
from radix_engine.model.errors import ModelError
from radix_engine.model.linear import TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.runner import ModelRunner
from radix_engine.model.source import ModelFolder, resolve_model
from tests.model.gguf_writing import write_gguf
from tests.model.helpers import logits_of, random_tokens
from tests.tiny import make_tiny_folder


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return make_tiny_folder(tmp_path / "original", tokenizer=True)


@pytest.fixture
def file(tmp_path: Path, original: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", original)


def logits(folder: ModelFolder) -> torch.Tensor:
    model = load_model(folder, TorchPacking(torch.float32))
    return logits_of(ModelRunner(model, 4), random_tokens(20), [2, 1])


def test_a_gguf_file_becomes_the_model_that_it_was_written_from(
    tmp_path: Path, original: Path, file: Path
) -> None:
    lines: list[str] = []
    folder = resolve_model(str(file), tmp_path / "cache", lines.append)
    assert (folder.name, folder.weights) == ("tiny", file)
    assert lines

    model = load_model(folder, TorchPacking(torch.float32))
    assert model.config.context_length == 1024
    assert model.eos_token_ids == {511}
    assert torch.equal(logits(folder), logits(ModelFolder(original, "original")))

    settings = json.loads((folder.path / "tokenizer_config.json").read_text())
    theirs = json.loads((original / "tokenizer_config.json").read_text())
    assert settings["chat_template"] == theirs["chat_template"]
    before = Tokenizer.from_file(str(original / "tokenizer.json"))
    after = Tokenizer.from_file(str(folder.path / "tokenizer.json"))
    for text in ("<|im_start|>user\nthe thing<|im_end|>\n", " an inner wörld", "日本"):
        assert after.encode(text).ids == before.encode(text).ids
        assert after.decode(after.encode(text).ids, skip_special_tokens=False) == text

    # The name of the pre-tokenizer in the file, "smollm", stands for digits one by one.
    pre_tokenizer = json.loads((folder.path / "tokenizer.json").read_text())["pre_tokenizer"]
    assert [part["type"] for part in pre_tokenizer["pretokenizers"]] == ["Digits", "ByteLevel"]
    assert pre_tokenizer["pretokenizers"][0]["individual_digits"] is True


def test_the_second_start_finds_the_folder_of_the_first(tmp_path: Path, file: Path) -> None:
    folder = resolve_model(str(file), tmp_path / "cache")
    lines: list[str] = []
    assert resolve_model(str(file), tmp_path / "cache", lines.append) == folder
    assert lines == []
    assert [path.name for path in (tmp_path / "cache/models").iterdir()] == [folder.path.name]
    assert resolve_model(str(folder.path)).weights == file


def test_the_folder_holds_no_weights(tmp_path: Path, file: Path) -> None:
    folder = resolve_model(str(file), tmp_path / "cache")
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "config.json",
        "generation_config.json",
        "gguf.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    size = sum(path.stat().st_size for path in folder.path.iterdir())
    assert size < 100_000 < file.stat().st_size


def test_a_file_that_moves_into_its_folder_can_go_anywhere_with_it(
    tmp_path: Path, file: Path
) -> None:
    convert_gguf(file, tmp_path / "models/tiny", lambda line: None, {"top_k": 7}, move=True)
    assert not file.exists()
    folder = resolve_model(str(tmp_path / "models/tiny"))
    assert folder.weights == folder.path / "tiny.gguf"
    assert load_model(folder, TorchPacking(torch.float32)).sampling.top_k == 7
    before = logits(folder)
    shutil.copytree(folder.path, tmp_path / "copy", copy_function=shutil.copyfile)
    assert torch.equal(logits(resolve_model(str(tmp_path / "copy"))), before)


def test_a_loaded_model_does_not_need_its_file_any_more(tmp_path: Path, file: Path) -> None:
    folder = resolve_model(str(file), tmp_path / "cache")
    runner = ModelRunner(load_model(folder, TorchPacking(torch.float32)), 4)
    before = logits_of(runner, random_tokens(20), [0, 1])
    size = file.stat().st_size
    with file.open("r+b") as opened:  # the very file that was mapped, all zeros
        opened.write(b"\0" * size)
    assert torch.equal(logits_of(runner, random_tokens(20), [0, 1]), before)


def test_a_file_that_is_gone_or_changed_is_named(tmp_path: Path, file: Path) -> None:
    folder = resolve_model(str(file), tmp_path / "cache").path
    kept = file.rename(tmp_path / "kept.gguf")
    with pytest.raises(ModelError, match=r"are in .*tiny\.gguf, which is not there any more"):
        resolve_model(str(folder))
    shutil.copyfile(kept, file)
    os.utime(file, ns=(0, kept.stat().st_mtime_ns + 1))
    with pytest.raises(ModelError, match=r"are in .*tiny\.gguf, which was changed since"):
        resolve_model(str(folder))
    os.utime(file, ns=(0, kept.stat().st_mtime_ns))
    assert resolve_model(str(folder)).weights == file


def test_a_file_in_its_folder_that_has_another_size_is_named(tmp_path: Path, file: Path) -> None:
    folder = convert_gguf(file, tmp_path / "models/tiny", lambda line: None, move=True)
    with (folder / "tiny.gguf").open("ab") as opened:
        opened.write(b"\0")
    with pytest.raises(ModelError, match=r"tiny\.gguf, which was changed since"):
        resolve_model(str(folder))


def test_a_replaced_file_is_converted_again(tmp_path: Path, file: Path) -> None:
    first = resolve_model(str(file), tmp_path / "cache")
    other = make_tiny_folder(tmp_path / "other", tokenizer=True, seed=1)
    write_gguf(file, other, metadata={"tokenizer.ggml.eos_token_id": 7})
    second = resolve_model(str(file), tmp_path / "cache")
    assert first.path != second.path
    assert load_model(second, TorchPacking(torch.float32)).eos_token_ids == {7}
    assert torch.equal(logits(second), logits(ModelFolder(other, "other")))


def test_a_reference_that_names_no_file_is_refused(tmp_path: Path, file: Path) -> None:
    folder = resolve_model(str(file), tmp_path / "cache").path
    (folder / "gguf.json").write_text('{"file": 3}')
    with pytest.raises(ModelError, match=r"gguf\.json does not name a file and its size"):
        resolve_model(str(folder))


def test_an_interrupted_conversion_leaves_nothing(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(file: Path, pre_tokenizer: str, folder: Path) -> None:
        (folder / "tokenizer.json").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(convert, "_write_tokenizer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        resolve_model(str(file), tmp_path / "cache")
    assert list((tmp_path / "cache/models").iterdir()) == []


def test_of_two_conversions_at_once_the_first_one_counts(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "models/tiny"
    write_tokenizer = convert._write_tokenizer

    def overtaken(file: Path, pre_tokenizer: str, folder: Path) -> None:
        write_tokenizer(file, pre_tokenizer, folder)
        target.mkdir()
        (target / "first").touch()

    monkeypatch.setattr(convert, "_write_tokenizer", overtaken)
    assert convert_gguf(file, target, lambda line: None) == target
    assert [path.name for path in target.iterdir()] == ["first"]
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "gpt2"}, r"tiny\.gguf .*architecture 'gpt2'"),
        ({"tensors": {"output_norm.weight": None}}, r"output_norm\.weight is missing from .*tiny"),
        ({"metadata": {"tokenizer.ggml.model": "?"}}, r"tiny\.gguf cannot be converted: "),
    ],
)
def test_what_cannot_be_served_is_refused_and_leaves_nothing(
    changes: dict[str, object], message: str, tmp_path: Path, original: Path
) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", original, **changes)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=message):
        resolve_model(str(file), tmp_path / "cache")
    models = tmp_path / "cache/models"
    assert not models.exists() or list(models.iterdir()) == []
