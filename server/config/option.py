"""An option of the server, however it is given."""

from __future__ import annotations

from dataclasses import dataclass

from server.config.readers import Choice, Reader

PREFIX = "RADIX_"


@dataclass(frozen=True, slots=True)
class Option:
    """``name``: as a configuration file has it; the flag and the variable follow from it.

    ``read`` makes a value of a text, or of each text of an ``is_list`` option. ``help`` says what
    it means, with its unit. ``default``: the text that holds where none is given; None: none does,
    and ``otherwise`` says what happens then (or what the default stands for). ``is_switch``: its
    flag takes no value, and has a twin that begins with --no-.
    """

    name: str
    group: str
    read: Reader
    help: str
    default: str | None = None
    otherwise: str = ""
    word: str = "N"
    is_switch: bool = False
    is_list: bool = False

    @property
    def flag(self) -> str:
        """On the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """In the environment."""
        return PREFIX + self.name.upper()

    @property
    def metavar(self) -> str:
        """What stands for its value in the help."""
        read = self.read
        return "{" + ",".join(read.known) + "}" if isinstance(read, Choice) else self.word

    @property
    def default_words(self) -> str:
        """Its default, for people."""
        return self.otherwise or str(self.default)
