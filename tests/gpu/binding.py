"""Calls of a flashinfer-like module, bound to the signatures of the real package.

Nothing here runs a kernel: the real package is only imported and looked at, which needs no GPU.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import inspect
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from tests.gpu.fake_flashinfer import FUNCTIONS, METHODS, WRAPPERS, make_fake

Signatures = Mapping[str, inspect.Signature]
"""By name: "rmsnorm", "<wrapper>.__init__", "<wrapper>.plan", "<wrapper>.run"; without self."""


class Bound:
    """A module whose functions and wrappers take only what the signatures say.

    A call that does not fit raises TypeError and goes no further; one that does is counted in
    ``bound`` by its name. A name without a signature raises AttributeError.
    """

    def __init__(self, module: Any, signatures: Signatures) -> None:
        self.bound: Counter[str] = Counter()
        self._module = module
        self._signatures = signatures

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if isinstance(value, type):
            self.signature(f"{name}.__init__")

            def construct(*args: Any, **kwargs: Any) -> _BoundWrapper:
                made = self.call(f"{name}.__init__", value, args, kwargs)
                return _BoundWrapper(self, name, made)

            return construct
        if not callable(value):
            return value
        self.signature(name)
        return lambda *args, **kwargs: self.call(name, value, args, kwargs)

    def signature(self, name: str) -> inspect.Signature:
        """That of a name; AttributeError where there is none."""
        if name not in self._signatures:
            raise AttributeError(f"{name} is not among the signatures")
        return self._signatures[name]

    def call(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Bind, count, call."""
        try:
            self.signature(name).bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"flashinfer.{name}: {error}") from None
        self.bound[name] += 1
        return function(*args, **kwargs)


class _BoundWrapper:
    """A wrapper: methods that have a signature are bound, everything else is the wrapper's own."""

    def __init__(self, owner: Bound, name: str, wrapper: Any) -> None:
        for field, value in (("_owner", owner), ("_name", name), ("_wrapper", wrapper)):
            object.__setattr__(self, field, value)

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._wrapper, attribute)
        if not inspect.ismethod(value) or attribute.startswith("_"):
            return value
        name = f"{self._name}.{attribute}"
        self._owner.signature(name)
        return lambda *args, **kwargs: self._owner.call(name, value, args, kwargs)

    def __setattr__(self, attribute: str, value: Any) -> None:
        setattr(self._wrapper, attribute, value)


EXECUTED: Counter[str] = Counter()
"""All calls of this test run that were bound to the real package's signatures and executed by the
fake. `conftest.py` says how many at the end."""


class CountedFake(Bound):
    """A fake behind the real package's signatures, whose calls count in `EXECUTED`."""

    def call(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Bind, call, count."""
        result = super().call(name, function, args, kwargs)
        EXECUTED[name] += 1
        return result


def bound_fake() -> Any:
    """A new fake flashinfer that takes only what the real package would."""
    return CountedFake(make_fake(), real_signatures())


def bound(module: Any, signatures: Signatures) -> Bound:
    """``module`` behind a check of every call against ``signatures``."""
    return Bound(module, signatures)


@functools.cache
def real_flashinfer() -> ModuleType:
    """The installed package, imported so that it writes into a temporary folder only.

    Raises ModuleNotFoundError where it is not installed: `make test` installs it.
    """
    folder = tempfile.mkdtemp(prefix="flashinfer-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # Without the first, its norms need a compiler package that only a GPU machine has.
    settings = {"FLASHINFER_USE_CUDA_NORM": "1", "FLASHINFER_WORKSPACE_BASE": folder}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        return importlib.import_module("flashinfer")
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@functools.cache
def real_signatures() -> Signatures:
    """Those of all that the fake stands in for. Costs an import: seconds, the first time."""
    package = real_flashinfer()
    found = {f.__name__: _signature(getattr(package, f.__name__)) for f in FUNCTIONS}
    for wrapper in WRAPPERS:
        real = getattr(package, wrapper.__name__)
        for method in METHODS:
            found[f"{wrapper.__name__}.{method}"] = _method_signature(real, method)
    return found


def _method_signature(wrapper: type, method: str) -> inspect.Signature:
    whole = inspect.signature(getattr(wrapper, method))
    kinds = [parameter.kind for parameter in whole.parameters.values()]
    if method == "plan" and inspect.Parameter.VAR_KEYWORD in kinds:
        # It passes everything on to a method that says what it takes.
        method = "_plan_impl"
    signature = _signature(getattr(wrapper, method))
    _, *parameters = signature.parameters.values()
    return signature.replace(parameters=parameters)


def _signature(function: Any) -> inspect.Signature:
    """The named parameters only: ``*args`` and ``**kwargs`` would let any mistake through."""
    signature = inspect.signature(function)
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [p for p in signature.parameters.values() if p.kind not in variadic]
    if not named:
        raise TypeError(f"the signature of {function} says nothing: {signature}")
    return signature.replace(parameters=named)
