"""The page's files: all there, of the right type, under a strict policy; and the terminal."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from server.debug.terminal import body_of, run
from server.http.debug.page import Page
from tests.server_http.real import COMPLETIONS
from tests.server_http.running import Running

STATIC = Path(__file__).parents[3] / "server" / "http" / "debug" / "static"


def test_every_file_comes_with_its_type_and_a_strict_policy(client: TestClient) -> None:
    types = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    page = client.get("/debug")
    assert page.headers["content-type"].startswith("text/html")
    for path in STATIC.iterdir():
        response = client.get(f"/debug/static/{path.name}")
        assert response.content == path.read_bytes()
        if path.suffix in types:
            assert response.headers["content-type"].startswith(types[path.suffix])
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        again = {"If-None-Match": response.headers["etag"]}
        assert client.get(f"/debug/static/{path.name}", headers=again).status_code == 304


@pytest.mark.parametrize("name", ["nothing.js", "..%2fpage.py", "%2e%2e"])
def test_no_other_file_comes(client: TestClient, name: str) -> None:
    assert client.get(f"/debug/static/{name}").status_code == 404


def test_the_page_names_only_what_there_is_and_nothing_elsewhere() -> None:
    names = Page().names
    for path in STATIC.iterdir():
        text = path.read_text(encoding="utf-8")
        for found in re.findall(r'from "\./([^"]+)"|/debug/static/([\w.]+)', text):
            assert "".join(found) in names
        without_svg = text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in without_svg
        assert "https://" not in without_svg
        assert "innerHTML" not in text
        assert "localStorage" not in text or path.name == "theme.js"
    html = (STATIC / "index.html").read_text(encoding="utf-8")
    assert " style=" not in html
    assert not re.search(r"\son\w+=", html)


def test_the_files_are_part_of_the_package() -> None:
    project = tomllib.loads((STATIC.parents[3] / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["package-data"]["server.http.debug"] == ["static/*"]


def test_the_api_description_has_all_of_it(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    for path in ("tree", "events", "explain", "requests", "requests/{request_id}", "memory-curve"):
        assert f"/debug/{path}" in paths


def test_a_terminal_shows_the_tree_and_an_explanation(
    client: TestClient, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "The cat sat on the mat and slept until the morning."
    client.post(COMPLETIONS, json={"prompt": text, "max_tokens": 1})
    file = tmp_path / "prompt.json"
    file.write_text('{"prompt": "The cat sat on the hat and slept until the morning."}')
    assert run(["tree", "--url", url], {}) == 0
    assert "The cat sat on the mat" in capsys.readouterr().out
    assert run(["explain", "--file", str(file), "--url", url], {}) == 0
    told = capsys.readouterr().out
    assert told.startswith("The prompt leaves what is stored at token ")
    assert "  prompt  hat and slept" in told
    assert "  stored  mat and slept" in told
    assert run(["explain", "--request", "nobody", "--url", url], {}) == 1
    assert "is not known" in capsys.readouterr().err


def test_a_server_that_does_not_answer_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tree", "--url", "http://127.0.0.1:9"], {}) == 1
    assert "http://127.0.0.1:9 does not answer" in capsys.readouterr().err


def test_a_wrong_address_and_a_missing_file_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for address in ("gpu-3", "ftp://gpu-3", "http://gpu-3:x"):
        assert run(["tree", "--url", address], {}) == 1
        assert f"--url: {address!r} is no address" in capsys.readouterr().err
    assert run(["explain", "--file", str(tmp_path / "gone")], {}) == 1
    assert "gone cannot be read: No such file" in capsys.readouterr().err


def test_a_file_may_be_a_body_messages_token_ids_or_text() -> None:
    assert body_of('{"prompt": "a"}') == {"prompt": "a"}
    assert body_of('[{"role": "user", "content": "a"}]')["messages"][0]["content"] == "a"
    assert body_of("[1, 2]") == {"prompt": [1, 2]}
    assert body_of("Hello {") == {"prompt": "Hello {"}


def test_a_server_without_a_tree_says_so(server: Running) -> None:
    server.engine.inspector._cache = None
    for response in (
        server.client.get("/debug/tree"),
        server.post("/debug/explain", {"prompt": "a"}),
    ):
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "no_tree"
