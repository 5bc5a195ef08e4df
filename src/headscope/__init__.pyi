from headscope import errors as errors
from headscope.causal.effects import effects as effects
from headscope.causal.importance import importance as importance
from headscope.causal.loss_effects import prune_heads as prune_heads
from headscope.causal.removal import check_importance as check_importance
from headscope.heads.detect import detect_heads as detect_heads
from headscope.heads.head_map import map_heads as map_heads
from headscope.measuring.contract import Metric as Metric
from headscope.measuring.ratio import RatioMetric as RatioMetric
from headscope.measuring.registry import register_metric as register_metric
from headscope.model.edit import ablate as ablate
from headscope.model.edit import scale_neurons as scale_neurons
from headscope.model.edit import set_attention as set_attention
from headscope.model.load import load as load
from headscope.model.model import Model as Model
from headscope.model.segments import cut_segments as cut_segments
from headscope.page.save_page import save_page as save_page
from headscope.probes.probe_bias import probe_bias as probe_bias
from headscope.probes.probe_coreference import probe_coreference as probe_coreference
from headscope.probes.probe_dependencies import probe_dependencies as probe_dependencies
from headscope.probes.train_probe import train_probe as train_probe
from headscope.reporting.report import report as report
from headscope.results.opening import open as open
from headscope.results.probe import Probe as Probe
from headscope.results.result import Result as Result
from headscope.results.trace import Trace as Trace
from headscope.run.analyze import analyze as analyze
from headscope.run.merge import merge as merge
from headscope.text.annotate import annotate as annotate
from headscope.text.corpus import Corpus as Corpus
from headscope.text.demo_corpus import demo_corpus as demo_corpus
from headscope.text.document import Document as Document
from headscope.text.readers.formats import register_reader as register_reader
from headscope.text.readers.read import read as read
from headscope.text.readers.reader import Reader as Reader

__all__: list[str]
__version__: str
