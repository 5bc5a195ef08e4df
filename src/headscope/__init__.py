"""headscope: see and measure what every attention head of a Transformer does.

    import headscope as hs

    model = hs.load("minilm")
    trace = model.trace("The cat sat on the mat.", pair="The cat lay on the rug.")
    trace.attention  # layer head query key
    trace.explore()  # or trace.save_page("page.html")

Names are imported when they are first used: `import headscope` alone loads neither torch
nor any optional library, prints nothing and touches no network. `__init__.pyi` lists them.
"""

from headscope.lazy import lazy_names, read_stub

__version__ = "0.2.0"

_STUB = __spec__.loader.get_data(f"{__file__}i").decode()  # __init__.pyi, also in a zip file
__getattr__, __dir__ = lazy_names(__name__, read_stub(_STUB), "__version__")
__all__ = __dir__()

del lazy_names, read_stub
