"""headscope: see and measure what every attention head of a Transformer does.

    import headscope as hs

    model = hs.load("minilm")
    trace = model.trace("The cat sat on the mat.", pair="The cat lay on the rug.")
    trace.attention  # layer head query key
    hs.explore(trace)  # or hs.save_page(trace, "page.html")

Names are imported when they are first used: `import headscope` alone loads neither torch
nor any optional library, prints nothing and touches no network.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headscope import errors

if TYPE_CHECKING:
    from headscope.causal.importance import importance
    from headscope.causal.removal import check_importance
    from headscope.figures.best_heads import probe_figure
    from headscope.figures.exemplar_table import exemplar_table
    from headscope.figures.papers import draw as draw_figure
    from headscope.figures.papers import save_figures
    from headscope.figures.probe_sentences import example_figure
    from headscope.heads.bias_table import bias_table
    from headscope.heads.detect import detect_heads
    from headscope.heads.explain import explain_head
    from headscope.heads.head_map import HeadMap, map_heads
    from headscope.heads.probe_table import ProbeTable, probe_table
    from headscope.measuring.contract import Metric
    from headscope.measuring.ratio import RatioMetric
    from headscope.measuring.registry import register_metric
    from headscope.model.edit import ablate, scale_neurons, set_attention
    from headscope.model.load import load
    from headscope.model.model import Model
    from headscope.model.segments import cut_segments
    from headscope.page.explorer import explore, head_view, model_view, neuron_view
    from headscope.page.save_page import save_page
    from headscope.probes.probe_bias import probe_bias
    from headscope.probes.probe_coreference import probe_coreference
    from headscope.probes.probe_dependencies import probe_dependencies
    from headscope.probes.probe_examples import probe_examples
    from headscope.probes.train_probe import train_probe
    from headscope.reporting.report import report
    from headscope.results.opening import open_file as open
    from headscope.results.probe import Probe
    from headscope.results.result import Result
    from headscope.results.trace import Trace
    from headscope.run.analyze import analyze
    from headscope.run.compare import compare
    from headscope.run.measure import measure
    from headscope.run.merge import group_result, merge
    from headscope.text.annotate import annotate
    from headscope.text.corpus import Corpus
    from headscope.text.demo_corpus import demo_corpus
    from headscope.text.document import Document
    from headscope.text.readers.read import read
    from headscope.text.readers.reader import Reader
    from headscope.text.readers.registry import register_reader

__version__ = "0.1.0"

__all__ = [
    "Corpus",
    "Document",
    "HeadMap",
    "Metric",
    "Model",
    "Probe",
    "ProbeTable",
    "RatioMetric",
    "Reader",
    "Result",
    "Trace",
    "__version__",
    "ablate",
    "analyze",
    "annotate",
    "bias_table",
    "check_importance",
    "compare",
    "cut_segments",
    "demo_corpus",
    "detect_heads",
    "draw_figure",
    "errors",
    "example_figure",
    "exemplar_table",
    "explain_head",
    "explore",
    "group_result",
    "head_view",
    "importance",
    "load",
    "map_heads",
    "measure",
    "merge",
    "model_view",
    "neuron_view",
    "open",
    "probe_bias",
    "probe_coreference",
    "probe_dependencies",
    "probe_examples",
    "probe_figure",
    "probe_table",
    "read",
    "register_metric",
    "register_reader",
    "report",
    "save_figures",
    "save_page",
    "scale_neurons",
    "set_attention",
    "train_probe",
]

_HOMES = {
    "Corpus": "headscope.text.corpus:Corpus",
    "Document": "headscope.text.document:Document",
    "HeadMap": "headscope.heads.head_map:HeadMap",
    "Metric": "headscope.measuring.contract:Metric",
    "Model": "headscope.model.model:Model",
    "ProbeTable": "headscope.heads.probe_table:ProbeTable",
    "Probe": "headscope.results.probe:Probe",
    "RatioMetric": "headscope.measuring.ratio:RatioMetric",
    "Reader": "headscope.text.readers.reader:Reader",
    "Result": "headscope.results.result:Result",
    "Trace": "headscope.results.trace:Trace",
    "ablate": "headscope.model.edit:ablate",
    "analyze": "headscope.run.analyze:analyze",
    "annotate": "headscope.text.annotate:annotate",
    "bias_table": "headscope.heads.bias_table:bias_table",
    "check_importance": "headscope.causal.removal:check_importance",
    "compare": "headscope.run.compare:compare",
    "cut_segments": "headscope.model.segments:cut_segments",
    "demo_corpus": "headscope.text.demo_corpus:demo_corpus",
    "detect_heads": "headscope.heads.detect:detect_heads",
    "draw_figure": "headscope.figures.papers:draw",
    "example_figure": "headscope.figures.probe_sentences:example_figure",
    "exemplar_table": "headscope.figures.exemplar_table:exemplar_table",
    "explain_head": "headscope.heads.explain:explain_head",
    "explore": "headscope.page.explorer:explore",
    "group_result": "headscope.run.merge:group_result",
    "head_view": "headscope.page.explorer:head_view",
    "importance": "headscope.causal.importance:importance",
    "load": "headscope.model.load:load",
    "map_heads": "headscope.heads.head_map:map_heads",
    "measure": "headscope.run.measure:measure",
    "merge": "headscope.run.merge:merge",
    "model_view": "headscope.page.explorer:model_view",
    "neuron_view": "headscope.page.explorer:neuron_view",
    "open": "headscope.results.opening:open_file",
    "probe_bias": "headscope.probes.probe_bias:probe_bias",
    "probe_coreference": "headscope.probes.probe_coreference:probe_coreference",
    "probe_dependencies": "headscope.probes.probe_dependencies:probe_dependencies",
    "probe_examples": "headscope.probes.probe_examples:probe_examples",
    "probe_figure": "headscope.figures.best_heads:probe_figure",
    "probe_table": "headscope.heads.probe_table:probe_table",
    "read": "headscope.text.readers.read:read",
    "register_metric": "headscope.measuring.registry:register_metric",
    "register_reader": "headscope.text.readers.registry:register_reader",
    "report": "headscope.reporting.report:report",
    "save_figures": "headscope.figures.papers:save_figures",
    "save_page": "headscope.page.save_page:save_page",
    "scale_neurons": "headscope.model.edit:scale_neurons",
    "set_attention": "headscope.model.edit:set_attention",
    "train_probe": "headscope.probes.train_probe:train_probe",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headscope' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
