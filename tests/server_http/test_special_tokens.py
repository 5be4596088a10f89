"""Special tokens in answers: hidden, or shown on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from radix_engine.model.token_logprob import TokenLogprob
from server.http.openai.logprobs import TextLogprobs
from server.text import TextCodec
from tests.server_chat.tiny_tokenizer import START, write_tokenizer
from tests.server_http.running import Running


@pytest.mark.parametrize(
    ("path", "prompt"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/completions", {"prompt": "x"}),
    ],
)
def test_both_endpoints_ask_for_them(server: Running, path: str, prompt: Any) -> None:
    for sent, skips in ((False, False), (True, True), (None, True)):
        server.post(path, {**prompt, "skip_special_tokens": sent}).raise_for_status()
        submitted = server.engine.record.submitted
        assert submitted[max(submitted)][1].skip_special_tokens == skips


def test_tokens_have_their_places_in_the_text_that_is_shown(tmp_path: Path) -> None:
    codec = TextCodec(write_tokenizer(tmp_path / "tokenizer"))
    ids = codec.encode(f"a{START}b")
    entries = [TokenLogprob(token, -1.0, ()) for token in ids]
    offsets = {
        shows: TextLogprobs(codec, shows).of(entries)["text_offset"] for shows in (False, True)
    }
    assert offsets == {False: [0, 1, 1], True: [0, 1, 1 + len(START)]}
