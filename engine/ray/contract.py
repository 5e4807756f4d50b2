"""What each version of Ray exports: the metric contract.

One file a version in `metrics/`, made from running Ray by `python -m deploy.ray_contract` and kept beside what
no scrape shows (what is dropped by default, what counts twice); and one of what has changed, or was never
there, with what to write instead. `docs/checks/README.md` explains the columns.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

HISTOGRAM_PARTS = ("_bucket", "_sum", "_count", "_created")
TARGET_LABELS = frozenset({"instance", "job"})
"""What every scrape adds; relabelling may add any other."""
RELABELLED = frozenset(
    {"cluster", "container", "endpoint", "namespace", "node", "pod", "ray_io_cluster", "service"}
)
"""What scrapes in Kubernetes usually add, be it also the name of a label that some metric of Ray has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric as Ray exports it. A histogram is one metric, by the name without `_bucket`."""

    name: str
    type: str  # gauge, counter, histogram; empty: Ray's own dashboards name it, no scrape has shown it
    always: frozenset[str] = frozenset()  # labels that every series has
    sometimes: frozenset[str] = frozenset()  # labels that some series have
    values: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # of labels with a bounded set of them
    unit: str = ""
    period: float | None = None  # seconds between two publications, by default
    resets: str = ""  # whose restart starts it anew: head, node, worker
    cumulative: bool = False  # only grows, although its TYPE is gauge
    born_at_one: bool = False  # its first sample is the first event: `increase` does not see it
    dropped: frozenset[str] = frozenset()  # labels that Ray leaves out by default
    source: str = ""  # the label whose values each count the same things
    offsets: bool = False  # the sources offset each other: some are below 0
    once: str = ""  # of those the value that counts each thing once
    help: str = ""

    @property
    def labels(self) -> frozenset[str]:
        """Every label that Ray gives it."""
        return self.always | self.sometimes

    @property
    def measured(self) -> bool:
        """Whether a scrape has shown its type and labels."""
        return bool(self.type)


class Series(NamedTuple):
    """A name that can be asked for: a metric, and which part of it if it is a histogram."""

    metric: Metric
    part: str = ""  # _bucket, _sum, _count, _created

    @property
    def grows(self) -> bool:
        """Whether it is a counter by TYPE, as the parts of a histogram are."""
        return self.metric.type == "counter" or self.part in ("_bucket", "_sum", "_count")

    @property
    def labels(self) -> frozenset[str]:
        """Every label that Ray gives it."""
        return self.metric.labels | ({"le"} if self.part == "_bucket" else set())

    @property
    def always(self) -> frozenset[str]:
        """The labels that every series of it has."""
        return self.metric.always | ({"le"} if self.part == "_bucket" else set())


class Change(NamedTuple):
    """A name, a label or a value that does not work, and what does."""

    metric: str  # its name, or the start of it before a `*`
    label: str  # empty: the metric itself
    value: str  # empty: any
    since: tuple[int, int]  # the first version for which it is said
    until: tuple[int, int]  # the first version after those
    rewrite: str  # PromQL, or one matcher for a label
    why: str

    def applies(self, version: tuple[int, int], metric: str, label: str = "", value: str = "") -> bool:
        """Tell whether this is about that metric or label in that version."""
        named = metric.startswith(self.metric[:-1]) if self.metric.endswith("*") else metric == self.metric
        return (
            named and self.since <= version < self.until and self.label == label and self.value in ("", value)
        )


@dataclass(frozen=True, slots=True)
class Contract:
    """Every metric of one version of Ray."""

    version: str
    metrics: Mapping[str, Metric]
    changes: tuple[Change, ...]

    @property
    def number(self) -> tuple[int, int]:
        """The version as numbers, to compare."""
        return version_number(self.version)

    def find(self, name: str) -> Series | None:
        """Return what series of that name are; None if there are none. A histogram's own name is none."""
        if (metric := self.metrics.get(name)) is not None:
            return None if metric.type == "histogram" else Series(metric)
        for part in HISTOGRAM_PARTS:
            metric = self.metrics.get(name.removesuffix(part)) if name.endswith(part) else None
            if metric is not None and metric.type in ("histogram", ""):
                return Series(metric, part)
        return None

    def change(self, metric: str, label: str = "", value: str = "") -> Change | None:
        """Return what is known to be wrong with a metric's name, or with a label of it."""
        return next((each for each in self.changes if each.applies(self.number, metric, label, value)), None)

    def names(self) -> Iterator[str]:
        """Yield every name that can be asked for."""
        for metric in self.metrics.values():
            if metric.type == "histogram":
                yield from (metric.name + part for part in HISTOGRAM_PARTS)
            else:
                yield metric.name

    def vocabulary(self) -> frozenset[str]:
        """Return every label that Ray gives to any metric."""
        return frozenset().union(*(metric.labels | metric.dropped for metric in self.metrics.values()))


def version_number(version: str) -> tuple[int, int]:
    """Return major and minor number of `2.60.0`. Raises ValueError."""
    major, minor, *_ = f"{version}.0".split(".")
    return int(major), int(minor)


@cache
def versions() -> tuple[str, ...]:
    """Return the versions with a contract, oldest first."""
    found = (each.name.removesuffix(".tsv") for each in _data().iterdir() if each.name[0].isdigit())
    return tuple(sorted(found, key=version_number))


@cache
def contract(version: str = "") -> Contract:
    """Return the contract that holds for a version: the newest one that is not newer. Raises ValueError.

    Without a version it is the newest; of a version older than all of them, the oldest.
    """
    known = versions()
    chosen = known[-1]
    if version:
        wanted = version_number(version)
        chosen = max(
            (each for each in known if version_number(each) <= wanted), key=version_number, default=known[0]
        )
    metrics = {metric.name: metric for metric in map(read_row, _rows(f"{chosen}.tsv"))}
    return Contract(version or chosen, metrics, tuple(map(_change, _rows("changes.tsv"))))


def exported_by(name: str) -> list[str]:
    """Return the versions whose contract has series of that name, oldest first."""
    return [version for version in versions() if contract(version).find(name) is not None]


def read_row(row: Mapping[str, str]) -> Metric:
    """Return the metric that a row of a version's file stands for."""
    labels = row["labels"].split()
    return Metric(
        name=row["name"],
        type=row["type"],
        always=frozenset(each for each in labels if not each.endswith("?")),
        sometimes=frozenset(each[:-1] for each in labels if each.endswith("?")),
        values=dict(_values(row["values"])),
        unit=row["unit"],
        period=float(row["period"]) if row["period"] else None,
        resets=row["resets"],
        cumulative="cumulative" in row["flags"].split(),
        born_at_one="born-at-1" in row["flags"].split(),
        offsets="offsets" in row["flags"].split(),
        dropped=frozenset(row["dropped"].split()),
        source=row["source"].partition("=")[0],
        once=row["source"].partition("=")[2],
        help=row["help"],
    )


def _values(written: str) -> Iterable[tuple[str, tuple[str, ...]]]:
    for each in written.split():
        label, _, values = each.partition("=")
        yield label, tuple(values.split("|"))


def _change(row: Mapping[str, str]) -> Change:
    return Change(
        row["metric"],
        row["label"],
        row["value"],
        version_number(row["since"]) if row["since"] else (0, 0),
        version_number(row["until"]) if row["until"] else (999, 0),
        row["rewrite"],
        row["why"],
    )


def _rows(name: str) -> list[dict[str, str]]:
    text = (_data() / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def _data() -> Traversable:
    return files("engine.ray") / "metrics"
