"""Tiny models as the tests of transformers make them, for families that `shrink` cannot build.

    git clone … transformers; python -m tests.families.sweep --testers transformers

Those tests are not part of the installed package. They want `parameterized`, and `datasets` at
least by name; names that their version has and ours lacks are made up, because only the parts
that build a model run.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from transformers import CONFIG_MAPPING, PretrainedConfig, PreTrainedModel

from tests.families.shrink import MAX_PARAMETERS, NotBuilt, Tiny, seeded

MAX_NAMES = 60
"""That are made up for one test file before it is given up."""


class _Anything(ModuleType):
    """Stands for a package that is only imported."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **_: args[0] if args else None


def tiny_from_tests(family: str, class_name: str, checkout: Path) -> Tiny:
    """The model and the inputs that the family's own test would use.

    It takes the place of `tests` among the loaded modules, so it wants a process of its own.

    Raises:
        NotBuilt: there is no such test, or its model does not run on its inputs.
    """
    _enter(checkout)
    failure = "transformers has no test of it"
    folder = CONFIG_MAPPING[family].__module__.split(".")[2]
    for path in sorted((checkout / "tests" / "models" / folder).glob("test_modeling_*.py")):
        try:
            module = _imported(f"tests.models.{folder}.{path.stem}")
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            continue
        for model_class, config, inputs in _cases(module, class_name):
            try:
                return _ran(model_class, config, inputs)
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
    raise NotBuilt(failure)


def _enter(checkout: Path) -> None:
    """Let `tests` be those of the checkout."""
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]
    sys.path.insert(0, str(checkout))
    os.environ["HF_HUB_OFFLINE"] = "1"  # their set-up asks the hub for files that no model needs
    if importlib.util.find_spec("datasets") is None:
        stub = _Anything("datasets")
        stub.__spec__ = importlib.machinery.ModuleSpec("datasets", None)
        sys.modules["datasets"] = stub


def _imported(name: str) -> ModuleType:
    importlib.import_module("transformers.testing_utils")
    for _ in range(MAX_NAMES):
        try:
            return importlib.import_module(name)
        except ImportError as error:
            lacks = re.search(r"cannot import name '(\w+)' from '([\w.]+)'", str(error))
            if lacks is None or lacks[2] not in sys.modules:
                raise
            setattr(sys.modules[lacks[2]], lacks[1], lambda *args, **_: args[0] if args else None)
    raise ImportError(name)


def _cases(
    module: ModuleType, class_name: str
) -> Iterator[tuple[type[PreTrainedModel], PretrainedConfig, dict[str, Any]]]:
    """Model class, configuration and inputs of every test case that knows the class."""
    defined = [value for value in vars(module).values() if isinstance(value, type)]
    for case in (value for value in defined if value.__module__ == module.__name__):
        if not (hasattr(case, "all_model_classes") or hasattr(case, "model_tester_class")):
            continue
        try:
            test: Any = case.__new__(case)
            test.setUp()
            known = [c for c in test.all_model_classes or () if c.__name__ == class_name]
            config, inputs = test.model_tester.prepare_config_and_inputs_for_common()
        except Exception:  # an abstract case, or one that lacks what only its test has
            continue
        for model_class in known:
            yield model_class, config, dict(inputs)


def _ran(
    model_class: type[PreTrainedModel], config: PretrainedConfig, inputs: dict[str, Any]
) -> Tiny:
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    module = model_class(config)
    if sum(p.numel() for p in module.parameters()) > MAX_PARAMETERS:
        raise NotBuilt("still too large")
    module = seeded(module)
    kept = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    with torch.no_grad():
        module(**kept)
    return Tiny(module, kept)
