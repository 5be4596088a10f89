"""The command line: defaults, and a clear word for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from radix_engine.model.errors import ModelError
from scheduler import Limits
from server import Engine, EngineOptions
from server.__main__ import ready_message
from server.command_line import parse
from server.loading import usable_processors
from server.options import CacheOptions
from tests.server.conftest import MakeEngine


def test_without_options_the_defaults_of_engine_and_limits_hold() -> None:
    options = parse([])
    assert options.engine == EngineOptions()
    assert (options.host, options.port, options.grace_s) == ("127.0.0.1", 8000, 5.0)


def test_each_option_reaches_the_engine() -> None:
    words = (
        "--model m --dtype fp32 --kv-memory 1GiB --prefix-cache off --threads 3 --port 0 "
        "--quantization int4 --kv-dtype int8 --kernels torch --attention torch --exact "
        "--max-step-tokens 100 --max-running 9 --max-passed-by 2 --host 0.0.0.0 --grace 0 "
        "--eviction slru --partial-blocks off --cache-ttl 60 --order dfs --fair --max-waiting 7 "
        "--gpu-memory-utilization 0.5"
    )
    options = parse(words.split())
    assert options.engine == EngineOptions(
        model="m",
        dtype="fp32",
        quantization="int4",
        kv_dtype="int8",
        kernels="torch",
        attention="torch",
        exact=True,
        kv_memory="1GiB",
        gpu_memory_utilization=0.5,
        threads=3,
        cache=CacheOptions(False, "tree", "slru", False, 60.0),
        limits=Limits(100, 9, 2, 7),
        order="dfs",
        fair=True,
    )
    assert (options.host, options.port, options.grace_s) == ("0.0.0.0", 0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--modle x", "unrecognized arguments: --modle"),
        ("--port 70000", "must lie between 0 and 65535, not 70000"),
        ("--port http", "--port: must lie between 0 and 65535, not http"),
        ("--threads 0", "must be at least 1, not 0"),
        ("--threads two", "invalid number value: 'two'"),
        ("--grace -1", "must be at least 0"),
        ("--grace nan", "must be at least 0"),
        ("--dtype int8", "invalid choice: 'int8'"),
        ("--attention paged", "invalid choice: 'paged'"),
        ("--attention flashinfer --kernels avx512_bf16", "does not go with kernels avx512_bf16"),
        ("--gpu-memory-utilization 0", "must lie between 0.1 and 1.0, not 0"),
        ("--gpu-memory-utilization 90%", "invalid number value: '90%'"),
        ("--prefix-cache maybe", "invalid choice: 'maybe'"),
        ("--max-step-tokens 0", "--max-step-tokens must be at least 1"),
        ("--max-running 9 --max-step-tokens 8", "--max-running (9) must not exceed"),
        ("--max-passed-by -1", "--max-passed-by must be at least 0"),
        ("--max-waiting 0", "--max-waiting must be at least 1"),
        ("--order lifo", "invalid choice: 'lifo'"),
    ],
)
def test_a_wrong_option_is_named_with_its_limit(
    arguments: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        parse(arguments.split())
    assert exit_info.value.code == 2
    assert words in capsys.readouterr().err


def test_every_option_documents_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    options = [word for word in text.split() if word.startswith("--")]
    assert text.count("(default:") >= len({word.strip("[],") for word in options}) - 1


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


def test_a_small_step_brings_its_own_number_of_running_requests() -> None:
    assert parse(["--max-step-tokens", "32"]).engine.limits == Limits(
        32, 32, Limits().max_passed_by
    )


@pytest.mark.parametrize(("quota", "most"), [("150000 100000", 2), ("50000 100000", 1)])
def test_a_quota_of_the_control_group_limits_the_threads(
    tmp_path: Path, quota: str, most: int
) -> None:
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "cpu.max").write_text(quota + "\n")
    assert usable_processors(tmp_path) == min(most, usable_processors(tmp_path / "no quota"))


def test_many_running_requests_bring_their_own_step() -> None:
    assert parse(["--max-running", "600"]).engine.limits.step_tokens == 600


@pytest.mark.parametrize("share", [0.0, 0.09, 1.01, float("nan")])
def test_a_share_of_a_gpu_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"gpu_memory_utilization must lie between 0\.1 and 1"):
        EngineOptions(gpu_memory_utilization=share)
