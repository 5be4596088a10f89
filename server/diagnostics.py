"""Whether a request goes on with an earlier one, and what has changed where it does not.

Of each recent prompt only digests are kept: of its tools, its system prompt and each message, and
of its tokens up to the end of each block. What was served from the cache is the tree's to say.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import takewhile
from typing import Any, Literal

from radix_engine.cache import TOKEN_BYTES, Namespace, Reason, pack
from server.near_miss import PromptSource
from server.outputs import Usage

BLOCK_TOKENS = 16
_SIZE = 8  # bytes of a digest
_SYSTEM = ("system", "developer")

Change = Literal["tools", "system", "variables", "compacted", "messages"]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A prompt of ``tokens`` tokens, in digests. ``blocks``: of the tokens up to the end of each
    block; ``messages``: of each message but the system's at the head; 8 bytes each. ``variables``:
    of what the chat template was told besides."""

    tokens: int
    blocks: bytes
    tools: bytes
    system: bytes
    variables: bytes
    messages: bytes

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return 512 + len(self.blocks) + len(self.messages)


def fingerprint(
    tokens: Sequence[int], source: PromptSource, variables: Mapping[str, Any]
) -> Fingerprint:
    """Cost: some hashes of the messages, and one for each 16 tokens: about as much as to copy a
    prompt ten times."""
    messages = list(source.messages)
    head = list(takewhile(lambda message: message.get("role") in _SYSTEM, messages))
    return Fingerprint(
        len(tokens),
        _prefixes(pack(tokens)),
        _digest(list(source.tools)),
        _digest(head),
        _digest(dict(variables)),
        b"".join(map(_digest, messages[len(head) :])),
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """``change``: what kept a request from being served what an earlier one left; None: nothing
    that the client did. ``missed_tokens``: those of the earlier prompt that were not served.
    ``reusable_tokens``: those that both begin with, in whole blocks. ``is_miss`` False: all were
    served, but for less than a block."""

    is_miss: bool
    change: Change | None
    missed_tokens: int
    reusable_tokens: int


def compare(earlier: Fingerprint, now: Fingerprint, usage: Usage) -> Verdict:
    """``usage``: of the request that is answered now. Pure."""
    missed = max(0, min(earlier.tokens, now.tokens - 1) - usage.cached_tokens)
    reusable = BLOCK_TOKENS * _common(earlier.blocks, now.blocks)
    end = usage.match_end
    change = _change(earlier, now)
    if end is not None and end.reason is Reason.EVICTED and end.position < reusable:
        change = None  # what comes before the change was gone
    return Verdict(missed >= BLOCK_TOKENS, change, missed, reusable)


class RecentPrompts:
    """The fingerprints of the last requests, by the ids of their answers, within ``most_bytes``.
    Any thread. An id is known to its own tenant only."""

    def __init__(self, most_bytes: int = 8 * 1024 * 1024) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[Namespace, Fingerprint]] = OrderedDict()

    def add(self, answer_id: str, namespace: Namespace, mark: Fingerprint) -> None:
        """An answer of this id is on its way."""
        with self._lock:
            self._known[answer_id] = namespace, mark
            self._bytes += mark.size_bytes
            while self._bytes > self._most_bytes:
                _, (_, oldest) = self._known.popitem(last=False)
                self._bytes -= oldest.size_bytes

    def find(self, answer_id: str, namespace: Namespace) -> Fingerprint | None:
        """That of an answer; None where it is not known, or belongs to another namespace."""
        with self._lock:
            found = self._known.get(answer_id)
        return None if found is None or found[0] != namespace else found[1]


def _change(earlier: Fingerprint, now: Fingerprint) -> Change | None:
    """The first of what has changed, in the order in which most prompts have it."""
    if earlier.tools != now.tools:
        return "tools"
    if earlier.system != now.system:
        return "system"
    if earlier.variables != now.variables:
        return "variables"
    if now.messages.startswith(earlier.messages):
        return None
    return "compacted" if len(now.messages) < len(earlier.messages) else "messages"


def _digest(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_SIZE).digest()


def _prefixes(run: bytes) -> bytes:
    step = BLOCK_TOKENS * TOKEN_BYTES
    whole = blake2b(digest_size=_SIZE)
    found = bytearray()
    for start in range(0, len(run) - step + 1, step):
        whole.update(run[start : start + step])
        found += whole.digest()
    return bytes(found)


def _common(one: bytes, other: bytes) -> int:
    """How many digests two rows of them begin with alike: as they are of prefixes, those after the
    first that differs differ, too."""
    low, high = 0, min(len(one), len(other)) // _SIZE
    while low < high:
        middle = (low + high + 1) // 2
        last = slice((middle - 1) * _SIZE, middle * _SIZE)
        if one[last] == other[last]:
            low = middle
        else:
            high = middle - 1
    return low
