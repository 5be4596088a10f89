"""How the server starts: what it loads, whom it lets in, and what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from radix_engine.model.errors import ModelError
from server import Engine, EngineOptions
from server.__main__ import http_settings, ready_message, warnings_of
from server.config.command import parse
from server.config.server_options import ServerOptions
from server.head_noise import HeadNoise
from server.loading import usable_processors
from tests.server.conftest import MakeEngine
from tests.server_http.keys import ACME, ring, write_keys


def parsed(*words: str) -> ServerOptions:
    return parse(words, {})


def test_the_options_of_http_reach_it(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.toml")
    settings = http_settings(
        parsed(
            "--api-key-file", str(keys), "--cors-origin", "https://a.example",
            "--request-timeout", "9", "--max-body-size", "2KiB", "--host", "box.example",
            "--wedged-after", "7", "--model-alias", "claude-*", "--model-alias", "gpt",
        )
    )  # fmt: skip
    assert settings.keys is not None
    assert settings.keys.keys.holder_of(ACME) is not None
    assert settings.cors_origins == ("https://a.example",)
    assert (settings.request_timeout_s, settings.max_body_bytes) == (9.0, 2048)
    assert (settings.hosts, settings.wedged_after_s) == (("box.example",), 7.0)
    assert settings.model_aliases == ("claude-*", "gpt")
    assert http_settings(parsed()).model_aliases == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_the_address_of_all_is_nobodys_name(host: str) -> None:
    assert http_settings(parsed("--host", host)).hosts == ()


def test_keys_that_cannot_be_read_are_an_error_for_the_user(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--api-key-file"):
        http_settings(parsed("--api-key-file", str(tmp_path / "none.toml")))


def test_what_is_stripped_from_prompts_is_a_choice(tmp_path: Path) -> None:
    file = tmp_path / "noise.txt"
    file.write_text("# a remark\n\nnow: [^\\n]*\n")
    assert http_settings(parsed()).head_noise == HeadNoise()
    assert http_settings(parsed("--strip-head-noise", "off")).head_noise == HeadNoise(())
    named = http_settings(parsed("--strip-head-noise", str(file))).head_noise
    assert named == HeadNoise((r"now: [^\n]*",))


@pytest.mark.parametrize(
    ("host", "is_warned"),
    [("127.0.0.1", False), ("localhost", False), ("::1", False), ("0.0.0.0", True), ("box", True)],
)
def test_a_server_that_others_reach_without_keys_is_warned_of(host: str, is_warned: bool) -> None:
    lines = warnings_of(host, None)
    assert [bool(re.search(r"--host .*--api-key-file", line)) for line in lines] == (
        [True] if is_warned else []
    )


def test_with_keys_the_warnings_are_those_of_their_file(tmp_path: Path) -> None:
    keys = ring(tmp_path)
    assert warnings_of("0.0.0.0", keys) == keys.warnings == []
    (tmp_path / "keys.toml").chmod(0o644)
    assert "chmod 600" in warnings_of("0.0.0.0", ring(tmp_path))[0]


@pytest.mark.parametrize("name", ["no/such/folder/anywhere", "missing.gguf", "./nowhere"])
def test_a_model_that_is_not_there_is_named(name: str, tmp_path: Path) -> None:
    wanted = str(tmp_path / name)
    with pytest.raises(ModelError, match=name.split("/")[-1]):
        Engine.load(EngineOptions(model=wanted))


def test_more_kv_memory_than_the_machine_has_is_refused(tiny_folder: Path) -> None:
    with pytest.raises(ValueError, match="more than the memory available"):
        Engine.load(EngineOptions(model=str(tiny_folder), kv_memory="900TiB"))


def test_a_model_folder_is_served_with_the_memory_asked_for(tiny_folder: Path) -> None:
    options = EngineOptions(model=str(tiny_folder), kv_memory="1MiB", dtype="fp32", kernels="torch")
    with Engine.load(options) as engine:
        info = engine.info
        assert info.num_blocks == 2**20 // (info.block_size * info.kv_bytes_per_token)
        assert info.kv_bytes_per_token == 2 * 2 * 2 * 16 * 4  # layers, K and V, heads, dim, bytes


def test_the_ready_message_has_address_model_memory_and_a_curl_line(
    make_engine: MakeEngine,
) -> None:
    message = ready_message(make_engine(num_blocks=64), "http://127.0.0.1:8000")
    for words in (
        "http://127.0.0.1:8000/v1/chat/completions",
        "curl",
        "tiny",
        "64 blocks of 16 tokens",
        "1,024 tokens",
        "512 bytes",
    ):
        assert words in message
    assert "KEY" not in message
    assert "-H 'Authorization: Bearer KEY'" in ready_message(
        make_engine(num_blocks=64), "http://127.0.0.1:8000", needs_key=True
    )


@pytest.mark.parametrize(("quota", "most"), [("150000 100000", 2), ("50000 100000", 1)])
def test_a_quota_of_the_control_group_limits_the_threads(
    tmp_path: Path, quota: str, most: int
) -> None:
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "cpu.max").write_text(quota + "\n")
    assert usable_processors(tmp_path) == min(most, usable_processors(tmp_path / "no quota"))


@pytest.mark.parametrize("share", [0.0, 0.09, 1.01, float("nan")])
def test_a_share_of_a_gpu_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"gpu_memory_utilization must lie between 0\.1 and 1"):
        EngineOptions(gpu_memory_utilization=share)
