"""PromQL without a server, for tests: floats, classic histograms, stable functions of Prometheus 3."""

from engine.lang.promql.evaluate import SUBQUERY_STEP, evaluate
from engine.lang.promql.lexis import shape
from engine.lang.promql.parse import Comparison, metric_names, selects, signal_of, split_comparison, validate
from engine.lang.promql.storage import Storage

__all__ = [
    "SUBQUERY_STEP",
    "Comparison",
    "Storage",
    "evaluate",
    "metric_names",
    "selects",
    "shape",
    "signal_of",
    "split_comparison",
    "validate",
]
