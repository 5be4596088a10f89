"""What a benchmark has measured so far, on disk call by call, so that a killed one can go on.

One JSON object a line: first the options that the figures depend on, then every answered call,
every session that ended early, and the facts of every leg that began or came to its end. A line is
handed to the system as soon as it is known; a process that is killed can leave only its last line
unfinished, which then is dropped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from workloads.agents.client import Answer
from workloads.agents.replay import Ended, Record, Replay
from workloads.traces.session import Session

_VERSION = 1


class JournalError(Exception):
    """A journal that cannot be gone on with; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Leg:
    """One replay of all sessions: against which target, in which round (from 0), and at which rate
    of arrivals (sessions a second; None: as the sessions have it)."""

    target: str
    round: int = 0
    rate: float | None = None


@dataclass(slots=True)
class Kept:
    """What a journal holds of a leg. ``began`` and ``finished`` are the facts that were noted of
    its first start and of its end; None where it did not get there."""

    records: list[Record] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    began: dict[str, Any] | None = None
    finished: dict[str, Any] | None = None

    @property
    def replay(self) -> Replay:
        """The replay as far as it got; without an end, its time is that of its last answer."""
        last = max((r.sent_s + r.answer.total_s for r in self.records), default=0.0)
        wall_s = last if self.finished is None else self.finished["wall_s"]
        return Replay(tuple(self.records), tuple(self.ended), wall_s)


class Journal:
    """An open journal; each note is on disk when its method returns."""

    def __init__(self, file: IO[str], kept: Mapping[Leg, Kept]) -> None:
        self._file, self._kept = file, kept

    def kept(self, leg: Leg) -> Kept:
        """What was known of a leg when the journal was opened."""
        return self._kept.get(leg, Kept())

    def began(self, leg: Leg, facts: Mapping[str, object]) -> None:
        """Note the start of a leg."""
        self._note("began", leg, facts)

    def call(self, leg: Leg, record: Record) -> None:
        """Note an answered call."""
        self._note("call", leg, asdict(record))

    def ended(self, leg: Leg, ended: Ended) -> None:
        """Note a session's early end."""
        self._note("ended", leg, asdict(ended))

    def finished(self, leg: Leg, facts: Mapping[str, object]) -> None:
        """Note a leg's end, with what was measured beside its calls (``wall_s`` among it)."""
        self._note("finished", leg, facts)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _note(self, kind: str, leg: Leg, content: Mapping[str, object]) -> None:
        _write(self._file, {"kind": kind, "leg": asdict(leg), **content})


def open_journal(path: Path, options: Mapping[str, object], resume: bool) -> Journal:
    """The journal to go on with, or a new one. Raises JournalError."""
    return (resume_journal if resume else start_journal)(path, options)


def start_journal(path: Path, options: Mapping[str, object]) -> Journal:
    """A new journal. One that is there already is kept beside it as ``.old``, until the next."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.replace(path.with_name(path.name + ".old"))
    file = path.open("x", encoding="utf-8")
    _write(file, {"journal": _VERSION, "options": dict(options)})
    return Journal(file, {})


def resume_journal(path: Path, options: Mapping[str, object]) -> Journal:
    """The journal of an earlier run with the same options, to go on with.

    Raises JournalError where there is none, where it was made with other options (each is named
    with both values) and where it is damaged before its last line.
    """
    made_with, kept, length = read_journal(path)
    wanted = json.loads(json.dumps(dict(options)))
    differing = [
        f"{name} was {_shown(made_with.get(name))} and is {_shown(wanted.get(name))}"
        for name in sorted(made_with.keys() | wanted.keys())
        if made_with.get(name) != wanted.get(name)
    ]
    if differing:
        raise JournalError(
            f"{path} was made with other options: {'; '.join(differing)}. Give those options "
            "again, or leave --resume out to measure anew"
        )
    file = path.open("r+", encoding="utf-8")
    file.truncate(length)
    file.seek(0, 2)
    return Journal(file, kept)


def read_journal(path: Path) -> tuple[dict[str, Any], dict[Leg, Kept], int]:
    """A journal's options, what it holds of each leg, and its length (bytes) up to the last whole
    line. Raises JournalError."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise JournalError(
            f"--resume: there is no journal {path}; leave --resume out, or name the folder that "
            "has it with --output"
        ) from None
    length = content.rfind(b"\n") + 1
    lines = content[:length].decode(errors="replace").splitlines()
    kept: dict[Leg, Kept] = {}
    try:
        head = json.loads(lines[0])
        if head["journal"] != _VERSION:
            raise JournalError(f"{path} has the form {head['journal']}; known is {_VERSION}")
        options: dict[str, Any] = head["options"]
        for line in lines[1:]:
            _take(kept, json.loads(line))
    except (IndexError, ValueError, KeyError, TypeError) as error:
        raise JournalError(
            f"{path} holds a line that is not a journal's ({type(error).__name__}: {error}); leave "
            "--resume out to measure anew"
        ) from error
    return options, kept, length


def _take(kept: dict[Leg, Kept], line: dict[str, Any]) -> None:
    kind, leg = line.pop("kind"), Leg(**line.pop("leg"))
    known = kept.setdefault(leg, Kept())
    if kind == "call":
        known.records.append(Record(**line | {"answer": Answer(**line["answer"])}))
    elif kind == "ended":
        known.ended.append(Ended(**line))
    elif kind == "began":
        known.began = known.began or line
    elif kind == "finished":
        known.finished = line
    else:
        raise ValueError(f"kind {kind!r}")


def sessions_digest(sessions: Sequence[Session]) -> str:
    """A fingerprint of all texts, replies and times of the sessions."""
    body = json.dumps([asdict(session) for session in sessions])
    return hashlib.blake2b(body.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _shown(value: object) -> str:
    return "not given" if value is None else str(value)


def _write(file: IO[str], value: Mapping[str, object]) -> None:
    file.write(json.dumps(value) + "\n")
    file.flush()
