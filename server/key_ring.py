"""The keys of a file that may change while the server runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from server.key_file import KeyFileError, read_key_file
from server.tenants import Keys

logger = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0

Stamp = tuple[int, int, int]


class KeyRing:
    """The keys in the file at ``path``, read again when it has changed. Any thread.

    Raises KeyFileError where it cannot be read at first. A later change that cannot be read leaves
    the keys as they were, and is logged. ``now``: a clock, in seconds.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._now = now
        self._stamp = _stamp(path)
        self._keys, self.warnings = read_key_file(path)
        self._looked = now()

    @property
    def keys(self) -> Keys:
        """The keys as they are now. Whether the file has changed is looked up when they are asked
        for, at most once a second."""
        now = self._now()
        if now - self._looked >= _LOOK_EVERY_S:
            self._looked = now
            if _stamp(self._path) != self._stamp:
                self.reload()
        return self._keys

    def reload(self) -> None:
        """Read the file now. Requests that are in flight go on, also those of keys that are
        gone."""
        self._stamp = _stamp(self._path)  # before it is read: a change meanwhile is another one
        try:
            self._keys, warnings = read_key_file(self._path)
        except KeyFileError as error:
            logger.error("the keys stay as they were: %s", error)
            return
        for line in warnings:
            logger.warning("%s", line)
        logger.info("%s: read again, %d keys", self._path, len(self._keys.holders))


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
