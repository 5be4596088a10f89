"""Compiling a grammar, which takes what time and stack its author likes; and trying whether it can
be done.

This file is also a program: it converts and compiles the grammars that come on its standard input.
One that takes too long, too much memory or too deep a stack ends that process and no other. So it
imports nothing of ours, and starts in a tenth of a second.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import threading
from collections.abc import Sequence
from typing import IO

from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.gbnf_to_lark import any_to_lark

CPU_SECONDS = 3.0  # for one grammar; the largest that people have take a tenth of that
_ADDRESS_SPACE_BYTES = 2 << 30
# A chain of references takes up to 30 kB of stack a link, and the longest text has 2,000.
_STACK_BYTES = 512 << 20
_LENGTH_BYTES = 8

CONVERT, COMPILE = "convert", "compile"

_stack_size = threading.Lock()


def make_tokenizer(definition: str, vocabulary: int, end_tokens: Sequence[int]) -> LLTokenizer:
    """llguidance's view of a tokenizer, given as the JSON of its ``tokenizer.json``, for a model
    with so many tokens. Raises ValueError for one that it cannot read. Takes tenths of a second.
    """
    try:
        return LLTokenizer(definition, n_vocab=vocabulary, eos_token=list(end_tokens))
    except ValueError as error:
        if "vocab size too small" not in str(error):
            raise
    # The tokenizer knows tokens that the model has no place for.
    return LLTokenizer(definition, eos_token=list(end_tokens))


def compile_grammar(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    """A matcher at the beginning of a grammar in llguidance's Lark, with its first token looked at;
    its ``get_error`` tells what is wrong with the grammar. Releases the interpreter meanwhile.
    """
    found: list[LLMatcher] = []

    def compile_it() -> None:
        limits = LLParserLimits(verbose_errors=False)
        matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
        if not matcher.is_error():
            matcher.compute_bitmask()
        found.append(matcher)

    with _stack_size:
        usual = threading.stack_size(_STACK_BYTES)
        thread = threading.Thread(target=compile_it, name="grammar")
        try:
            thread.start()
        finally:
            threading.stack_size(usual)
    thread.join()
    return found[0]


def write_message(stream: IO[bytes], text: str) -> None:
    """Send a text, with its length before it."""
    data = text.encode()
    stream.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    stream.flush()


def read_message(stream: IO[bytes]) -> str | None:
    """The next text; None at the end of the stream, also inside a text."""
    length = stream.read(_LENGTH_BYTES)
    if len(length) < _LENGTH_BYTES:
        return None
    size = int.from_bytes(length, "big")
    data = stream.read(size)
    return data.decode() if len(data) == size else None


def in_lark(source: str) -> tuple[str, str]:
    """A grammar in Lark or GBNF as one in Lark, and what is wrong with it."""
    try:
        return any_to_lark(source), ""
    except Exception as error:  # it knows no end of ways to fail
        return "", f"it is neither Lark nor GBNF: {error}"


def main() -> None:
    """Convert or compile what comes; answer with the grammar and what is wrong with it, which is
    nothing where it is good."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE_BYTES, _ADDRESS_SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    setup = read_message(requests)
    if setup is None:
        return
    tokenizer = make_tokenizer(**json.loads(setup))
    while (request := read_message(requests)) is not None:
        task, grammar = json.loads(request)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # what it sends ends the process
        if task == CONVERT:
            reply = in_lark(grammar)
        else:
            reply = "", compile_grammar(tokenizer, grammar).get_error()
        signal.setitimer(signal.ITIMER_PROF, 0)
        write_message(replies, json.dumps(reply))


if __name__ == "__main__":
    main()
