"""The process of one rank but the first: carries out what rank 0 says, until that ends.

``python -m radix_engine.parallel.worker N``, where N is the number of a socket to rank 0, which it
inherits. A worker ends with rank 0, whatever it is doing: nobody needs to end it by a signal, and
those of a terminal or a service manager, which go to all processes, are left to rank 0.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection

import torch

from radix_engine.model.linear import Linear
from radix_engine.model.served import Runner
from radix_engine.model.weights import LoadedModel
from radix_engine.parallel.member import Member, join, leave
from radix_engine.parallel.messages import (
    Kind,
    RunnerMaker,
    decode_copies,
    decode_load,
    decode_start,
    decode_step,
    kind_of,
)
from radix_engine.parallel.packing import load_part
from radix_engine.parallel.reports import Outcome, encode_report

_GRACE_S = 1.0  # for a worker to end by itself when rank 0 has


def main() -> None:
    """Serve rank 0 over the socket whose number is the first argument."""
    connection: Connection[bytes, bytes] = Connection(int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(connection.fileno(),), daemon=True).start()
    try:
        serve(connection)
    except EOFError:
        pass  # rank 0 has ended
    except BaseException:
        # At once, with no farewell to the group: others that wait for this rank must see it go.
        with suppress(OSError):
            connection.send_bytes(encode_report(Outcome.FAILED, traceback.format_exc()))
        os._exit(1)
    os._exit(0)  # torch takes a second to be taken down, and somebody waits


def serve(connection: Connection[bytes, bytes]) -> None:
    """Join the group that rank 0 names, then carry out its messages up to the last.

    Raises EOFError when rank 0 has ended without one, and whatever goes wrong in a step: this rank
    is then out of step with the others.
    """
    connection.send_bytes(encode_report(Outcome.DONE))
    member = pickle.loads(connection.recv_bytes())
    assert isinstance(member, Member)
    torch.set_num_threads(member.threads)
    join(member)
    connection.send_bytes(encode_report(Outcome.DONE))
    rank = _Rank(member)
    while (kind := kind_of(message := connection.recv_bytes())) != Kind.END:
        if kind == Kind.STEP:
            rank.runner.forward(decode_step(message))
        elif kind == Kind.COPY:
            rank.runner.copy_rows(decode_copies(message))
        else:
            connection.send_bytes(rank.prepare(kind, message))
    leave()


class _Rank:
    """A rank's part of a model, and its runner."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._model: LoadedModel[Linear] | None = None
        self._make_runner: RunnerMaker | None = None
        self._runner: Runner | None = None

    @property
    def runner(self) -> Runner:
        assert self._runner is not None, "a step before there is a runner"
        return self._runner

    def prepare(self, kind: Kind, message: bytes) -> bytes:
        """Load a model or make its runner. What goes wrong is reported; the rank stays in step."""
        try:
            self._runner = None  # its memory, before more is taken
            if kind == Kind.LOAD:
                self._load(message)
            else:
                self._start(*decode_start(message))
        except Exception:
            return encode_report(Outcome.REFUSED, traceback.format_exc())
        return encode_report(Outcome.DONE)

    def _load(self, message: bytes) -> None:
        self._model = None
        request = decode_load(message)
        member = self._member
        self._make_runner = request.make_runner
        self._model = load_part(
            request.folder, request.dtype, member.device, member.rank, member.size
        )

    def _start(self, num_blocks: int, block_size: int) -> None:
        assert self._model is not None, "no model is loaded"
        assert self._make_runner is not None
        self._runner = self._make_runner(self._model, num_blocks, block_size)


def _end_with_parent(socket: int) -> None:
    """End this process soon after rank 0's has, if it does not end by itself.

    Its main thread may be waiting for another rank then, which nothing else would end on a GPU.
    """
    poll = select.poll()
    poll.register(socket, select.POLLRDHUP)
    poll.poll()
    time.sleep(_GRACE_S)
    os._exit(1)


if __name__ == "__main__":
    main()
