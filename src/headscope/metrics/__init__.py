"""Metrics of attention heads, one family a file, and the names for writing one's own metric.

Names are imported when first used: `__init__.pyi` lists them. The contract and the code that sums
attention are in `core`; all of headscope's metrics are listed in `catalog`.
"""

from headscope.lazy import lazy_names, read_stub

_STUB = __spec__.loader.get_data(f"{__file__}i").decode()  # also in a zip file
__getattr__, __dir__ = lazy_names(__name__, read_stub(_STUB))
__all__ = __dir__()

del lazy_names, read_stub
