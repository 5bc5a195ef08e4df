"""The methods of results, traces, probes and tables that need rooms above their own.

Each is one call, and each import stands inside its method: `results` and `heads` stay plain
data, which loads neither torch nor matplotlib, and nothing else in the package points up.
"""
