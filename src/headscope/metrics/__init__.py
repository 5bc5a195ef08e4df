"""Metrics of attention heads, one family per file, and the names for writing a metric.

Names are imported at first use; `__init__.pyi` lists them. The contract is in `core`, the list of
headscope's metrics in `catalog`.
"""

from headscope.lazy import lazy_names, read_stub

_STUB = __spec__.loader.get_data(f"{__file__}i").decode()  # also in a zip file
__getattr__, __dir__ = lazy_names(__name__, read_stub(_STUB))
__all__ = __dir__()

del lazy_names, read_stub
