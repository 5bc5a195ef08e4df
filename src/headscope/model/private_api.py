"""Private interfaces of torch and transformers, in one place for upgrades.

Each has its reason, and its public replacement if one could exist. Other modules of headscope take
them from here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

from torch import Tensor, nn
from torch._C import _len_torch_function_stack
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks
from torch.overrides import _pop_mode, _push_mode
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.utils.hub import cached_file

Hook = Callable[..., object]

ATTENTION_IMPLEMENTATION = "_attn_implementation_internal"
"""Attribute of a configuration. The public setter also changes sub-configurations and checks
installed libraries. Replacement: a public setter for one configuration."""
COMMIT_HASH = "_commit_hash"
"""Attribute of a configuration: the revision that the hub served. Replacement: the hub's API."""
COMPILED_CALL = "_compiled_call_impl"
"""Attribute that `module.compile()` sets. Replacement: as for COMPILED_FORWARD."""
COMPILED_FORWARD = "_torchdynamo_orig_callable"
"""Attribute of a compiled forward method. Replacement: a public test for compiled functions."""
COMPILED_MODULE = "_orig_mod"
"""Attribute of a `torch.compile`d model. Replacement: a public way to the original module."""
NAME_OR_PATH = "_name_or_path"
"""Key of a configuration's dict that names the folder, not the model."""
OFFLOADING_HOOK = "_hf_hook"
"""Attribute of modules whose weights accelerate loads at each call. Replacement: a public test."""
OUTPUT_HOOKS_INSTALLED = "_output_capturing_hooks_installed"
"""Attribute that transformers sets once its output hooks are installed. Copies must drop it."""
SUPPORTS_SDPA = "_supports_sdpa"
"""Attribute of families that accept attention functions without weights. Replacement: a public
flag."""

UNWRAPPED_FORWARD = "_original_forward"
"""Attribute of a model whose forward method accelerate wrapped for mixed precision."""

# An interrupted call leaves its function mode on the stack, and `__exit__` pops only the top.
# Replacement: a public way to remove one mode.
mode_stack_length: Callable[[], int] = _len_torch_function_stack
pop_mode: Callable[[], object] = _pop_mode
push_mode: Callable[[object], None] = _push_mode

find_cached_file = partial(cached_file, _raise_exceptions_for_missing_entries=False)
"""Hub lookup that returns None for a missing file. Replacement: a public option."""
compiled_call: Callable[[nn.Module], object] = attrgetter(COMPILED_CALL)
"""Implementation that `module.compile()` set, or None. Replacement: as for COMPILED_FORWARD."""
tensor_version: Callable[[Tensor], int] = attrgetter("_version")
"""Number of in-place changes of a tensor. Replacement: a hash of the weights, which is slow."""
forward_hooks: Callable[[nn.Module], tuple[dict[int, Hook], dict[int, Hook]]] = attrgetter(
    "_forward_hooks", "_forward_pre_hooks"
)
"""Hooks of a module by number. Replacement: a public list; torch can only add and remove."""
GLOBAL_HOOKS = (_global_forward_hooks, _global_forward_pre_hooks)
"""Hooks of all modules in the process. Replacement: a public list."""
MASK_FUNCTIONS: dict[str, Callable[..., Any]] = ALL_MASK_ATTENTION_FUNCTIONS._global_mapping  # type: ignore[assignment]
"""Functions that make masks, by attention implementation. Replacement: `register` is public, but
nothing removes or reads an entry."""
