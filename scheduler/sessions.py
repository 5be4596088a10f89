"""The conversations that requests belong to: which there are, how large, and which are under way.

A session is known by the client's name for it. Without one, a request goes on with the session
whose last prompt it begins with. What is left of its context in the cache is worth keeping for as
long as it may come back: it is under way while a request of it waits or runs, and then for as long
as nearly all sessions take from a reply to their next request.
"""

from __future__ import annotations

from collections import deque

from radix_engine.cache import TOKEN_BYTES, Namespace
from scheduler.request import Request

# At most so many are remembered; those that were used last.
_MOST = 1024
# A prompt ends with what calls for an answer, which the next one may write otherwise.
_LOOSE_END = 8 * TOKEN_BYTES
_LAST = 8 * TOKEN_BYTES
# A session is waited for twice as long as nine in ten of the last pauses took.
_PAUSES, _LONG_PAUSE, _TIMES = 64, 0.9, 2.0
_FIRST_PATIENCE_S, _MOST_PATIENCE_S = 30.0, 300.0
_FEW_PAUSES = 8
_GROWTH_WEIGHT = 0.05


class Session:
    """``tokens`` of its context, the last answer included; of these it found ``shared`` when it
    began, which are others' too: its ``head``. ``run``: its last prompt, and ``begin``: that but
    for its end. ``requests``: of it that have not ended; the last one ended at ``ended_s``."""

    __slots__ = (
        "begin",
        "ended_s",
        "head",
        "key",
        "namespace",
        "prompt",
        "requests",
        "run",
        "shared",
        "tokens",
    )

    def __init__(self, key: object, request: Request) -> None:
        self.key = key
        self.namespace = request.namespace
        self.requests = 0
        self.tokens = self.prompt = request.num_prompt_tokens
        self.shared = 0
        self.head = b""
        self.ended_s = 0.0
        self.run = self.begin = b""

    @property
    def own(self) -> int:
        """Tokens that nobody else keeps in use."""
        return max(0, self.tokens - self.shared)


class Sessions:
    """The sessions of a scheduler. Costs: constant for a request with a session's name; else O(the
    sessions without one), some 0.3 us each, and comparing prompts where the ends agree."""

    def __init__(self) -> None:
        self._known: dict[object, Session] = {}  # the one used last is last
        self._nameless: dict[Namespace, dict[object, Session]] = {}
        self._of: dict[int, Session] = {}  # by request
        self._active: dict[object, Session] = {}
        self._pauses: deque[float] = deque(maxlen=_PAUSES)
        self._patience_s = _FIRST_PATIENCE_S
        self.growth: float | None = None  # tokens from one prompt of a session to its next

    def find(self, request: Request) -> Session | None:
        """The session that a request goes on with, if it is known."""
        if request.session is not None:
            return self._known.get((request.namespace, request.session))
        run, best, longest = request.run, None, 0
        for session in self._nameless.get(request.namespace, {}).values():
            begin = session.begin
            if len(begin) <= longest:
                continue
            # What all sessions begin with may be long; at its end hardly two are the same.
            if run.endswith(begin[-_LAST:], 0, len(begin)) and run.startswith(begin):
                best, longest = session, len(begin)
        return best

    def begin(self, request: Request) -> Session:
        """A session that was not known begins with this request, which is to be noted next."""
        if request.session is not None:
            key: object = (request.namespace, request.session)
        else:
            key = request.request_id
        session = Session(key, request)
        self._known[key] = session
        if request.session is None:
            self._nameless.setdefault(request.namespace, {})[key] = session
        if len(self._known) > _MOST:
            self._forget(next(iter(self._known.values())))
        return session

    def note(self, session: Session, request: Request, now: float) -> None:
        """A request of a session is to be served."""
        if session.run:
            if not session.requests:
                self._learn_pause(now - session.ended_s)
            more = request.num_prompt_tokens - session.prompt
            if more > 0:
                weight = 1.0 if self.growth is None else _GROWTH_WEIGHT
                self.growth = (1 - weight) * (self.growth or 0.0) + weight * more
        session.requests += 1
        session.prompt = request.num_prompt_tokens
        session.tokens = max(session.tokens if session.requests > 1 else 0, session.prompt)
        session.run = run = request.run
        session.begin = run[: max(TOKEN_BYTES, len(run) - _LOOSE_END)]
        self._of[request.request_id] = session
        self._active[session.key] = session
        self._known[session.key] = self._known.pop(session.key, session)

    def ended(self, request: Request, now: float) -> None:
        """A request is over. Nothing where it was not noted."""
        session = self._of.pop(request.request_id, None)
        if session is None:
            return
        session.requests -= 1
        session.tokens = max(session.tokens, len(request.tokens))
        session.ended_s = now

    def active(self, now: float) -> dict[object, Session]:
        """Those under way. Cost: O(of these)."""
        over = [
            session
            for session in self._active.values()
            if not session.requests and now - session.ended_s > self._patience_s
        ]
        for session in over:
            del self._active[session.key]
        return self._active

    def _learn_pause(self, pause_s: float) -> None:
        self._pauses.append(max(0.0, pause_s))
        if len(self._pauses) >= _FEW_PAUSES:
            long = sorted(self._pauses)[int(_LONG_PAUSE * len(self._pauses))]
            self._patience_s = min(_MOST_PATIENCE_S, _TIMES * long)

    def _forget(self, session: Session) -> None:
        del self._known[session.key]
        self._active.pop(session.key, None)
        nameless = self._nameless.get(session.namespace, {})
        if nameless.pop(session.key, None) is not None and not nameless:
            del self._nameless[session.namespace]  # clients name them, as many as they like
