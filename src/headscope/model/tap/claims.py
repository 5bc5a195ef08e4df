"""Which thread may use which modules.

A module belongs to no tap: several models may share it, or share parts of it. Whoever
attaches claims every part of its model, all at once or none, and keeps them until it
detaches. One thread may claim a part any number of times; another thread waits until the
part is free. A thread that waits holds nothing of what it waits for, so a model and its
base model never wait for one another forever.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from torch import nn

_freed = threading.Condition()
_claims: dict[int, tuple[threading.Thread, int]] = {}
"""Id of a module → the thread that claims it, and how many times."""


@contextmanager
def claimed(modules: Collection[nn.Module]) -> Iterator[None]:
    """Within the block, no other thread claims any of these modules."""
    thread = threading.current_thread()
    keys = [id(module) for module in modules]

    def are_free() -> bool:
        return all(_claims[key][0] is thread for key in keys if key in _claims)

    with _freed:
        _freed.wait_for(are_free)
        for key in keys:
            _, times = _claims.get(key, (thread, 0))
            _claims[key] = (thread, times + 1)
    try:
        yield
    finally:
        with _freed:
            for key in keys:
                times = _claims[key][1] - 1
                if times:
                    _claims[key] = (thread, times)
                else:
                    del _claims[key]
            _freed.notify_all()


def modules_of(root: nn.Module) -> list[nn.Module]:
    """All modules, each once. `root.modules()` makes every name on the way, which costs a
    small model as much as reading a layer does.
    """
    modules: dict[int, nn.Module] = {}
    ahead = [root]
    while ahead:
        module = ahead.pop()
        if id(module) not in modules:
            modules[id(module)] = module
            ahead += [child for child in module._modules.values() if child is not None]
    return list(modules.values())
