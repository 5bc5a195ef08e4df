"""Stand-ins for libraries that transformers imports and hardly any model uses.

Importing a model imports torch's compiler, its tensors on many machines, and SciPy's optimization,
which together take longer than torch itself. In processes of our own (commands, workers) these are
stand-ins until something of them is used: then the real modules are imported, and the stand-ins
pass everything on to them. A process that merely imports headscope is left alone.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

COMPILER = "torch._dynamo"
TORCH = (
    COMPILER,
    "torch.distributed._composable",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
)


def install() -> None:
    """Let stand-ins be imported in place of modules that are not there yet."""
    if not any(isinstance(finder, _Standins) for finder in sys.meta_path):
        sys.meta_path[:0] = [_Standins(TORCH), _Standins(("scipy.optimize",))]


class _Standins:
    """Finds and makes the stand-ins of one library, until one of them is used.

    Args:
        names: of modules; those within them are stood in for too.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._marked: list[Callable[..., object]] = []
        """Functions that the compiler was told not to look into."""

    @property
    def are_used(self) -> bool:
        """Are the real modules there?"""
        return self not in sys.meta_path

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(self.names):
            return None
        return importlib.util.spec_from_loader(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = _Standin(spec.name)
        module.__dict__["_standins"] = self
        if spec.name == COMPILER:
            module.__dict__.update(
                disable=self.disable,
                allow_in_graph=self.allow_in_graph,
                assume_constant_result=_assume_constant_result,
            )
        return module

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""

    def real(self, name: str) -> ModuleType:
        """The module itself. From now on the library's modules are imported as ever."""
        if not self.are_used:
            sys.meta_path.remove(self)
            for imported, module in list(sys.modules.items()):
                if isinstance(module, _Standin) and imported.startswith(self.names):
                    del sys.modules[imported]
            for function in self._marked:
                importlib.import_module(COMPILER).allow_in_graph(function)
        return importlib.import_module(name)

    def allow_in_graph(self, function: Callable[..., object]) -> Callable[..., object]:
        """`torch._dynamo.allow_in_graph`, which marks a function: done when there is a compiler."""
        self._marked.append(function)
        return function

    def disable(
        self, function: Callable[..., object] | None = None, *given: object, **options: object
    ) -> Callable[..., object]:
        """`torch._dynamo.disable`, which keeps the compiler out of a function."""
        if function is None:
            return lambda function: self.disable(function, *given, **options)
        if not isinstance(function, FunctionType):
            disabled = self.real(COMPILER).disable
            return disabled(function, *given, **options)  # type: ignore[no-any-return]
        in_compiler: Callable[..., object] | None = None

        @functools.wraps(function)
        def call(*args: object, **kwargs: object) -> object:
            nonlocal in_compiler
            if not self.are_used:  # there is no compiler to keep out
                return function(*args, **kwargs)
            if in_compiler is None:
                in_compiler = self.real(COMPILER).disable(function, *given, **options)
            return in_compiler(*args, **kwargs)

        return call


def _assume_constant_result(function: Callable[..., object]) -> Callable[..., object]:
    """`torch._dynamo.assume_constant_result`, which sets this mark and does nothing else."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


class _Standin(ModuleType):
    """A module that gives out stand-ins of whatever is imported from it."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        standins: _Standins = self.__dict__["_standins"]
        member = _Member(
            standins,
            lambda: getattr(standins.real(self.__name__), name),
            is_made_later=self.__name__.startswith("torch.distributed"),
        )
        self.__dict__[name] = member
        return member


class _Member:
    """What was imported from a stand-in, a function or a class, until it is used.

    Args:
        standins: of its library.
        itself: gets it.
        is_made_later: is what it returns a stand-in too? transformers makes tables of how layers
            could be spread over machines.
    """

    _standins: _Standins
    _itself: Callable[[], Any]
    _is_made_later: bool

    def __init__(
        self, standins: _Standins, itself: Callable[[], object], *, is_made_later: bool = False
    ) -> None:
        given = {"_standins": standins, "_is_made_later": is_made_later}
        self.__dict__.update(given, _itself=functools.cache(itself))

    def __call__(self, *args: object, **kwargs: object) -> object:
        if self._is_made_later and not self._standins.are_used:
            return _Member(self._standins, lambda: self._itself()(*args, **kwargs))
        return self._itself()(*args, **kwargs)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._itself(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._itself(), name, value)

    def __instancecheck__(self, value: object) -> bool:
        # Nothing is an instance of a class that nobody has imported.
        return self._standins.are_used and isinstance(value, self._itself())

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[object, ...]:
        return (self._itself(),)

    def __or__(self, other: object) -> object:
        return object  # in annotations, which nobody reads

    __ror__ = __or__
