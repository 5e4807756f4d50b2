"""Regenerate the metric contract of a version of Ray from a Ray that runs.

    python -m deploy.ray_contract --discovery http://127.0.0.1:8265/api/prometheus/sd
    python -m deploy.ray_contract --discovery /tmp/ray/prom_metrics_service_discovery.json --package VENV/…/ray

Every target of the service discovery is scraped, a few times: labels and values of all are merged, with what
the version's file has already, since no single run provokes every metric. What no scrape shows (the last
columns) is kept from there. `--package` adds the names that Ray's own dashboards ask for: they exist, and of
what type and with which labels is not known until a scrape shows it.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

FOLDER = Path(__file__).parent.parent / "engine" / "ray" / "metrics"
COLUMNS = (
    "name", "type", "labels", "values", "unit", "period", "resets", "flags", "dropped", "source", "help",
)  # fmt: skip
JUDGED = ("flags", "dropped", "source")
BOUNDED = frozenset(
    {
        "IsHeadNode",
        "IsRetry",
        "Location",
        "ObjectState",
        "Operation",
        "Reason",
        "Source",
        "State",
        "Type",
        "WorkloadType",
    }
)
"""Labels whose values Ray's code enumerates."""
FOREIGN = re.compile(r"(process|python|target)_|ray_app_|scrape_|up$")
CUMULATIVE = "cumulative"  # a gauge that only grows
OVERFLOW = "otel_metric_overflow"
_UNITS = (
    (r"_(milliseconds|ms)$", "ms"), (r"_(seconds|s)$", "s"),
    (r"_(bytes|memory)(_total)?$", "bytes"), (r"_mb$", "MB"),
    (r"percent|percentage|utilization", "percent"), (r"_mem_(used|total|available|used_host|total_host)$", "bytes"),
    (r"_speed$", "bytes/s"), (r"_iops$", "1/s"),
    (r"_network_(received|sent)$|_disk_(free|usage|io_read|io_write)$", "bytes"),
)  # fmt: skip


@dataclass(slots=True)
class Seen:
    """What scrapes have shown of one metric."""

    type: str
    help: str
    series: int = 0
    labels: dict[str, int] = field(default_factory=dict)  # how many series have it
    values: dict[str, set[str]] = field(default_factory=dict)
    components: set[str] = field(default_factory=set)

    def add(self, labels: Mapping[str, str]) -> None:
        """Note one series."""
        self.series += 1
        for name, value in labels.items():
            if value and name != "le":
                self.labels[name] = self.labels.get(name, 0) + 1
            if name in BOUNDED and re.fullmatch(r"[\w.:-]+", value):
                self.values.setdefault(name, set()).add(value)
        self.components.add(labels.get("Component", ""))

    def row(self, name: str) -> dict[str, str]:
        """Return the row of a version's file."""
        labels = [each + ("?" if count < self.series else "") for each, count in sorted(self.labels.items())]
        values = [f"{each}={'|'.join(sorted(found))}" for each, found in sorted(self.values.items())]
        return {
            "name": name,
            "type": self.type,
            "labels": " ".join(labels),
            "values": " ".join(values),
            "unit": next((unit for pattern, unit in _UNITS if re.search(pattern, name)), ""),
            "period": "10" if "NodeAddress" in self.labels else "5",
            "resets": "worker" if "WorkerId" in self.labels else "head" if self._of_head(name) else "node",
            "help": " ".join(self.help.split()),
        }

    def _of_head(self, name: str) -> bool:
        return name.startswith(("autoscaler_", "ray_dashboard_", "ray_cluster_")) or self.components == {
            "gcs_server"
        }


def main() -> None:
    """Scrape, merge, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--discovery", help="address of Ray's HTTP service discovery, or its file")
    parser.add_argument("--exposition", nargs="*", type=Path, default=[], help="saved pages of /metrics")
    parser.add_argument("--package", type=Path, help="the folder of the package `ray`, for its dashboards")
    parser.add_argument("--version", help="default: what the series say")
    parser.add_argument("--scrapes", type=int, default=3)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two scrapes")
    arguments = parser.parse_args()
    found: dict[str, Seen] = {}
    version = _scrape(arguments, found)
    path = FOLDER / f"{'.'.join((arguments.version or version).split('.')[:2])}.tsv"
    rows = {row["name"]: row for row in read_rows(path)} if path.exists() else {}
    for name, seen in found.items():
        rows[name] = merged(rows.get(name), seen.row(name))
    if arguments.package:
        _add_panels(rows, arguments.package)
    write_rows(path, rows.values())
    print(f"{path}: {len(rows)} metrics, {len(found)} of them seen now")  # noqa: T201, a command's answer


def _add_panels(rows: dict[str, dict[str, str]], package: Path) -> None:
    """Add the metrics that only Ray's dashboards name, and mark gauges of which they take a rate."""
    panels = read_panels(package)
    for name in sorted(panel_names(panels)):
        if name not in rows and re.sub(r"_(sum|count)$", "", name) not in rows:
            rows[name] = {"name": name}
    for name in set(re.findall(r"\b(?:rate|increase)\((ray_\w+)", panels)) & rows.keys():
        row = rows[name]
        if row.get("type") == "gauge" and CUMULATIVE not in row["flags"]:
            row["flags"] = f"{row['flags']} {CUMULATIVE}".strip()


def _scrape(arguments: argparse.Namespace, found: dict[str, Seen]) -> str:
    """Add what all pages hold to `found`, and return the version that they name."""
    version = ""
    for page in arguments.exposition:
        version = read_page(page.read_text(encoding="utf-8"), found) or version
    for number in range(arguments.scrapes if arguments.discovery else 0):
        if number:
            time.sleep(arguments.every)  # noqa: TID251, a script in real time
        for target in targets(arguments.discovery):
            version = read_page(_read(f"http://{target}/metrics"), found) or version
    return version


def targets(discovery: str) -> list[str]:
    """Return host and port of every endpoint that Ray's discovery names."""
    groups = json.loads(_read(discovery))
    return sorted({target for group in groups for target in group["targets"]})


def _read(place: str) -> str:
    if "://" not in place:
        return Path(place).read_text(encoding="utf-8")
    with urllib.request.urlopen(place, timeout=10) as answer:  # noqa: S310, the operator's own address
        return str(answer.read().decode())


def read_page(text: str, found: dict[str, Seen]) -> str:
    """Add one page's series to `found`, and return the version of Ray that it names."""
    version = ""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            histogram = family.type == "histogram"
            name = family.name if histogram else sample.name
            if FOREIGN.match(name):
                continue
            seen = found.setdefault(name, Seen(family.type, family.documentation))
            version = sample.labels.get("Version", version)
            # `_created` and the other parts have the labels of the buckets.
            if OVERFLOW not in sample.labels and (not histogram or sample.name.endswith("_count")):
                seen.add(sample.labels)
    return version


def merged(kept: Mapping[str, str] | None, new: dict[str, str]) -> dict[str, str]:
    """Return a row with what was seen now and before, and what was judged by hand."""
    if kept is None or not kept.get("type"):
        return {**new, **{name: (kept or {}).get(name, "") for name in JUDGED}}
    before, now = _labels(kept["labels"]), _labels(new["labels"])
    labels = {name: before.get(name, False) and now.get(name, False) for name in before | now}
    values = dict(_pairs(kept["values"]))
    for name, found in _pairs(new["values"]):
        values[name] = values.get(name, set()) | found
    return {
        **new,
        **{name: kept[name] for name in JUDGED},
        "unit": kept["unit"] or new["unit"],
        "period": kept["period"] or new["period"],
        "resets": kept["resets"] or new["resets"],
        "labels": " ".join(name + ("" if always else "?") for name, always in sorted(labels.items())),
        "values": " ".join(f"{name}={'|'.join(sorted(found))}" for name, found in sorted(values.items())),
    }


def _labels(written: str) -> dict[str, bool]:
    """Return labels by name: whether every series has them."""
    return {name.removesuffix("?"): not name.endswith("?") for name in written.split()}


def _pairs(written: str) -> Iterator[tuple[str, set[str]]]:
    for each in written.split():
        name, _, values = each.partition("=")
        yield name, set(values.split("|"))


def read_panels(package: Path) -> str:
    """Return the source of the dashboards in Ray's package."""
    folder = package / "dashboard" / "modules" / "metrics"
    pages = sorted([*folder.glob("*.py"), *folder.glob("dashboards/*.py")])
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def panel_names(panels: str) -> set[str]:
    """Return the metrics that dashboards ask for; histograms by their own name."""
    named = re.findall(r"\b(?:ray|autoscaler)_[a-z0-9_:]*[a-z0-9](?=\s*[{\[])", panels)
    return {re.sub(r"_(bucket|sum)$", "", name) for name in named}


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a version's file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def write_rows(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    """Write a version's file, by name."""
    text = io.StringIO()
    writer = csv.DictWriter(
        text, COLUMNS, restval="", delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda row: row["name"]))
    path.write_text(text.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    main()
