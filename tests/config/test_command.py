"""The command line: defaults, and a clear word for what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scheduler import Limits
from server import EngineOptions
from server.config.command import parse
from server.config.server_options import ServerOptions
from server.config.table import OPTIONS
from server.options import CacheOptions, TextOptions
from tests.config.values import texts_of

DEFAULT_LIMITS = Limits(max_waiting=1024)


def parsed(words: str, **environment: str) -> ServerOptions:
    return parse(words.split(), environment)


def test_without_options_the_defaults_of_engine_and_limits_hold() -> None:
    options = parsed("")
    assert options.engine == EngineOptions(limits=DEFAULT_LIMITS)
    assert (options.host, options.port, options.grace_s) == ("127.0.0.1", 8000, 5.0)
    assert (options.api_key_file, options.request_timeout_s) == (None, None)
    assert (options.cors_origins, options.max_body_bytes) == ((), 16 * 1024 * 1024)
    assert options.warnings == ()


def test_each_option_reaches_the_engine() -> None:
    options = parsed(
        "--model m --dtype fp32 --kv-memory 1GiB --prefix-cache off --threads 3 --port 0 "
        "--quantization int4 --kv-dtype int8 --kernels torch --attention torch --exact "
        "--max-step-tokens 100 --max-running 9 --max-passed-by 2 --host 0.0.0.0 --grace 0 "
        "--eviction slru --partial-blocks off --cache-ttl 60 --order dfs --fair --max-waiting 7 "
        "--gpu-memory-utilization 0.5 --tool-call-form hermes --reasoning-form think "
        "--transcript-memory 1MiB"
    )
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
        text=TextOptions("hermes", "think", 2**20),
    )
    assert (options.host, options.port, options.grace_s) == ("0.0.0.0", 0, 0.0)
    divided = parsed("--tensor-parallel 2 --step-timeout 90").engine
    assert (divided.tensor_parallel, divided.step_timeout_s) == (2, 90.0)
    assert parsed("--prefix-index hash").engine.cache.index == "hash"


def test_each_option_of_http_arrives() -> None:
    options = parsed(
        "--api-key-file keys.toml --cors-origin https://a.example --cors-origin * "
        "--request-timeout 90 --max-body-size 1MiB"
    )
    assert options.api_key_file == Path("keys.toml")
    assert options.cors_origins == ("https://a.example", "*")
    assert options.request_timeout_s == 90.0
    assert options.max_body_bytes == 2**20


@pytest.mark.parametrize("word", ["0", "unlimited"])
def test_any_number_may_wait_on_request(word: str) -> None:
    assert parsed(f"--max-waiting {word}").engine.limits.max_waiting is None


def test_a_switch_can_be_turned_off_again() -> None:
    assert not parsed("--no-fair", RADIX_FAIR="on").engine.fair
    assert parsed("--fair", RADIX_FAIR="off").engine.fair
    assert parsed("--no-exact --exact").engine.exact


def test_a_small_step_brings_its_own_number_of_running_requests() -> None:
    limits = parsed("--max-step-tokens 32").engine.limits
    assert (limits.max_step_tokens, limits.max_running) == (32, 32)


def test_many_running_requests_bring_their_own_step() -> None:
    assert parsed("--max-running 600").engine.limits.step_tokens == 600


def test_a_file_is_named_by_flag_or_variable(tmp_path: Path) -> None:
    for name, port in (("one", 1), ("two", 2)):
        (tmp_path / f"{name}.toml").write_text(f"port = {port}\nmax_running = 5\n")
    one, two = (str(tmp_path / f"{name}.toml") for name in ("one", "two"))
    assert parse([], {"RADIX_CONFIG": one}).port == 1
    options = parse(["--config", two], {"RADIX_CONFIG": one, "RADIX_MAX_RUNNING": "6"})
    assert (options.port, options.engine.limits.max_running) == (2, 6)


def complaint(words: str, capsys: pytest.CaptureFixture[str], **environment: str) -> str:
    with pytest.raises(SystemExit) as exit_info:
        parse(words.split(), environment)
    assert exit_info.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    return output.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--modle x", "--modle is no option; did you mean --model?"),
        ("--port=1 --grce=5", "--grce is no option; did you mean --grace?"),
        ("model", "'model' stands alone"),
        ("--port", "--port: expected one argument"),
        ("--fair=yes", "--fair"),
        ("--port 70000", "--port: must be a whole number from 0 to 65535, not '70000'"),
        ("--port http", "--port: must be a whole number from 0 to 65535, not 'http'"),
        ("--step-timeout 0", "--step-timeout: must be a number from 1 to 86400, not '0'"),
        ("--threads 0", "--threads: must be a whole number from 1, not '0'"),
        ("--threads two", "not 'two'"),
        ("--grace -1", "--grace: must be a number from 0, not '-1'"),
        ("--grace nan", "--grace: must be a number from 0, not 'nan'"),
        ("--grace inf", "not 'inf'"),
        ("--dtype int8", "--dtype: must be one of auto, bf16"),
        ("--attention paged", "--attention: must be one of"),
        ("--tensor-parallel 3", "--tensor-parallel: must be one of 1, 2, 4, 8, not '3'"),
        ("--attention flashinfer --kernels avx512_bf16", "does not go with kernels avx512_bf16"),
        ("--gpu-memory-utilization 0", "must be a number from 0.1 to 1, not '0'"),
        ("--gpu-memory-utilization 90%", "not '90%'"),
        ("--prefix-cache maybe", "--prefix-cache: must be on or off, not 'maybe'"),
        ("--kv-memory foo", "--kv-memory: 'foo' is not a size: write it like 2GiB"),
        ("--kv-memory 0", "--kv-memory: must be above 0"),
        ("--kv-memory 140%", "--kv-memory: '140%' is more than 100%"),
        ("--max-step-tokens 0", "--max-step-tokens: must be a whole number from 1"),
        ("--max-running 9 --max-step-tokens 8", "--max-running (9) must not exceed --max-step"),
        ("--max-passed-by -1", "--max-passed-by: must be a whole number from 0"),
        ("--max-waiting -1", "write 0 or unlimited for no limit"),
        ("--tool-call-form xml", "--tool-call-form: must be one of auto, mistral, qwen-xml"),
        ("--reasoning-form on", "--reasoning-form: must be one of auto, think, mistral, none"),
        ("--transcript-memory 5%", "--transcript-memory: must be a size from 0 B to 1.0 TiB"),
        ("--max-body-size 10", "--max-body-size: must be a size from 1.0 KiB to 1.0 GiB"),
        ("--max-body-size 50%", "--max-body-size: must be a size"),
        ("--request-timeout 0", "--request-timeout: must be a number from 0.001 to 86400"),
        ("--cors-origin app.example", "--cors-origin: must be an origin such as https://"),
        ("--cors-origin https://app.example/path", "without a path"),
        ("--cors-origin https://me@app.example", "--cors-origin: must be an origin"),
        ("--order lifo", "--order: must be one of"),
        ("--config nowhere.toml", "nowhere.toml: cannot be read"),
    ],
)
def test_a_wrong_option_is_named_with_its_limit_and_nothing_buries_that(
    arguments: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error, hint, rest = complaint(arguments, capsys).split("\n")
    assert error.startswith("error: ")
    assert words in error
    assert (hint, rest) == ("python -m server --help lists all options", "")


def test_the_hash_index_and_a_choice_of_eviction_are_both_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = complaint("--prefix-index hash", capsys, RADIX_EVICTION="lfu")
    assert "--eviction lfu goes with --prefix-index tree only" in error
    assert "Leave one of the two out (--eviction lfu comes from RADIX_EVICTION)" in error


def test_a_wrong_variable_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    error = complaint("", capsys, RADIX_PORT="tcp://10.0.0.1:8000")
    assert "RADIX_PORT: must be a whole number from 0 to 65535" in error
    error = complaint("--max-step-tokens 8", capsys, RADIX_MAX_RUNNING="9")
    assert "--max-running 9 comes from RADIX_MAX_RUNNING" in error


def test_the_help_names_every_option_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        parse(["--help"], {})
    assert exit_info.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for option in OPTIONS:
        assert f" {option.flag}" in text
        assert f"(default: {option.default_words})" in text
    assert text.count("(default:") == len(OPTIONS) + 2  # and --config, --print-config


def test_every_default_is_what_its_own_option_takes() -> None:
    for option in OPTIONS:
        assert option.default is not None or option.otherwise
        for text in (*texts_of(option), *([] if option.default is None else [option.default])):
            option.read(text)


def test_the_configuration_is_printed_with_where_each_value_comes_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.toml"
    file.write_text("order = 'fcfs'\n")
    with pytest.raises(SystemExit) as exit_info:
        parse(["--print-config", "--port", "9", "--config", str(file)], {"RADIX_FAIR": "1"})
    assert exit_info.value.code == 0
    lines = {line.split(" ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["port"].split("  ")[0] == "port = 9"
    assert lines["port"].endswith("# --port")
    assert lines["fair"].split("  ")[0] == "fair = true"
    assert lines["fair"].endswith("# RADIX_FAIR")
    assert lines["order"].split("  ")[0] == 'order = "fcfs"'
    assert lines["order"].endswith(f"# {file}: order")
    assert lines["eviction"].split("  ")[0] == 'eviction = "lru"'
    assert lines["eviction"].endswith("# default")


def test_what_cannot_be_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "must not exceed" in complaint(
        "--print-config --max-running 9 --max-step-tokens 8", capsys
    )


def test_unknown_variables_are_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = parsed("", RADIX_PROT="1").warnings
    assert "RADIX_PROT" in line
    with pytest.raises(SystemExit):
        parse(["--print-config"], {"RADIX_PROT": "1"})
    assert capsys.readouterr().err == f"warning: {line}\n"


def test_nothing_slow_is_loaded_for_the_command_line() -> None:
    code = "import sys, server.__main__; print('torch' in sys.modules)"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
