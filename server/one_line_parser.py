"""Parsers of command lines that say in a line what is wrong, without all options before it."""

from __future__ import annotations

import argparse
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Ends with status 2 on a wrong option, as argparse does; commands below it do the same."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and where the options are told."""
        self.exit(2, f"error: {message}\n{self.prog} --help lists all options\n")
