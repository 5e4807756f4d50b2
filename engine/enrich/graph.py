"""The alert's own signal as a chart: what it did, where the limit is, and when it will get there.

Drawn for a person who was just woken and looks at a phone: one dark line, everything else faint, words at the
lines instead of a legend, UTC as everywhere else.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.lang.readable import clock, cut, number, span
from engine.lang.units import Unit, unit_of
from engine.model.alert import Alert, Evidence, Picture, Text
from engine.model.duration import Duration
from engine.model.labels import ALERT_NAME
from engine.model.ports import Scene
from engine.model.series import Floats, Window, instant_of
from engine.registry import enricher

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINTS = 240
_OTHERS = 20  # faint lines
_WIDE = (
    10.0  # a limit or a band this many times larger than all samples would flatten the line and is only named
)

_INK, _SOFT, _FAINT, _GRID = "#1d1c1d", "#616061", "#c9ced6", "#eceef1"
_SIGNAL, _LIMIT, _PENDING = "#1264a3", "#d0342c", "#b7791f"
_USUAL = "#2f8f5b"
_LONGEST = Duration(days=14)  # that a chart reaches back to where something began
_BEFORE = 1.3  # times as far back, so that what was before is seen as well
_EDGE = 0.85  # of the width
_DAY = 86_400
_TICKS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)


@enricher("graph")
@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A chart of the rule's expression over the last `range`, with what the rule or its detector knows of it.

    That is the threshold or bound and the way to it, the trend with the interval of its slope, or the band of
    what is usual now. It reaches further back, up to two weeks, to where the detector says that it began. The
    alert's own series is drawn dark, at most 20 others of the same rule faintly beside it.
    """

    range: Duration = Duration(hours=1)

    def __post_init__(self) -> None:
        if self.range <= Duration():
            raise ValueError("range must be longer than 0s")

    def collect(self, scene: Scene) -> Evidence:
        expr, limit = _signal_of(scene)
        length = self._length(scene)
        seconds = max(1, math.ceil(length.total_seconds() / _POINTS))
        window = scene.source.range(expr, scene.at - length, scene.at, timedelta(seconds=seconds))
        own = window.row_of(scene.alert.signal)
        if own is None or not np.isfinite(window.values[own]).any():
            return Text("Chart", f"No samples of this alert's signal in the last {length}: {expr}")
        plot = _Plot(scene.alert, scene.at.timestamp(), window, own, limit, unit_of(expr))
        title = f"{scene.alert.name}, last {length}" + (" (partial answer)" if window.warnings else "")
        return Picture(title, plot.png(), plot.words())

    def _length(self, scene: Scene) -> Duration:
        """Return how far back the chart goes, in whole minutes where the detector says so."""
        since = scene.alert.details.get("since", math.inf)
        passed = _BEFORE * (scene.at.timestamp() - since)
        if not self.range.total_seconds() < passed:
            return self.range
        return min(Duration(minutes=math.ceil(passed / 60)), max(_LONGEST, self.range))


def _signal_of(scene: Scene) -> tuple[str, float | None]:
    """Return what to draw, and the limit."""
    from engine.lang.promql import signal_of  # noqa: PLC0415 - loads a parser

    expr, threshold = signal_of(scene.rule.expr)
    return expr, scene.alert.details.get("bound", threshold)


class _Band(NamedTuple):
    """What is usual now, in the signal's unit."""

    low: float
    high: float
    expected: float

    def words(self, unit: Unit) -> str:
        return f"usual now: {unit.show(self.low)} to {unit.show(self.high)}"


class _Trend(NamedTuple):
    """A straight line from `start`, the later of the chart's and its own, in the signal's unit; slopes by the hour."""

    since: float
    start: float
    now: float
    level: float
    slope: float
    low: float
    high: float

    def at(self, times: Floats) -> Floats:
        return self.level + self.slope * (times - self.now) / 3600

    def fan(self, times: Floats) -> tuple[Floats, Floats]:
        """Return the lowest and the highest that the slope's interval allows, about the line's middle."""
        away = np.abs(times - (self.since + self.now) / 2) / 3600
        return self.at(times) - away * (self.slope - self.low), self.at(times) + away * (
            self.high - self.slope
        )

    def words(self, unit: Unit) -> str:
        sign = "+" if self.slope >= 0 else "-"
        since = clock(instant_of(self.since), instant_of(self.now))
        return f"{sign}{unit.show(abs(self.slope))} an hour since {since}"


@dataclass(frozen=True, slots=True)
class _Plot:
    """One chart; times in Unix seconds, figures in the signal's unit until they are drawn."""

    alert: Alert
    now: float
    window: Window
    own: int
    limit: float | None
    unit: Unit

    @property
    def _values(self) -> Floats:
        """The alert's own samples, NaN where there is none."""
        values = self.window.values[self.own]
        return np.where(np.isfinite(values), values, np.nan)

    @property
    def _last(self) -> float:
        return float(self._values[~np.isnan(self._values)][-1])

    @property
    def _start(self) -> float:
        return float(self.window.times[0])

    @property
    def _eta(self) -> float | None:
        """Seconds until the limit, if there is still something to foresee."""
        eta = self.alert.details.get("eta", 0.0)
        return eta if self.limit is not None and eta > 0 and self.alert.firing else None

    @property
    def _limit_fits(self) -> bool:
        return self.limit is not None and abs(self.limit) <= _WIDE * float(np.nanmax(np.abs(self._values)))

    @property
    def _band(self) -> _Band | None:
        """What is usual now, if the detector knows."""
        details = self.alert.details
        low, high = details.get("low", math.nan), details.get("high", math.nan)
        largest = _WIDE * float(np.nanmax(np.abs(self._values)))
        if not (low < high and max(abs(low), abs(high)) <= largest):
            return None
        return _Band(low, high, details.get("expected", math.nan))

    @property
    def _trend(self) -> _Trend | None:
        """The straight line to now, if the detector fitted one."""
        details = self.alert.details
        slope, since = details.get("slope_per_hour", math.nan), details.get("since", math.nan)
        if math.isnan(slope) or not since < self.now:
            return None
        low, high = details.get("slope_low", slope), details.get("slope_high", slope)
        start = max(since, self._start)
        level = details.get("level", self._last)
        hours = (self.now - start) / 3600
        if hours * max(abs(low), abs(slope), abs(high)) > _WIDE * max(abs(level), 1e-300):
            return None
        return _Trend(since, start, self.now, level, slope, low, high)

    def words(self) -> str:
        """Return in words what the chart shows."""
        show, low, high = self.unit.show, float(np.nanmin(self._values)), float(np.nanmax(self._values))
        length = span(float(self.window.times[-1]) - self._start)
        text = f"{show(self._last)} now, between {show(low)} and {show(high)} in the last {length}"
        if self.limit is not None:
            text += f"; limit {show(self.limit)}"
        if self._eta is not None:
            text += f", reached in about {span(self._eta)}"
        if self._trend is not None:
            text += f"; {self._trend.words(self.unit)}"
        return text if self._band is None else f"{text}; {self._band.words(self.unit)}"

    def png(self) -> bytes:
        """Return the chart as a PNG."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - costs 0.3 s
        from matplotlib.figure import Figure  # noqa: PLC0415

        figure = Figure(figsize=(8, 3.6), dpi=130, facecolor="white")  # no pyplot: its state is the process's
        canvas: Any = FigureCanvasAgg(figure)
        width = 0.87 if self._band is None else 0.765  # words stand right of a band
        axes = figure.add_axes((0.085, 0.105, width, 0.71))
        scale, unit = self._scale()
        self._lines(axes, scale)
        self._heights(axes, scale)
        self._limit_line(axes, scale)
        end = self._forecast(axes, scale)
        self._trend_line(axes, scale)
        self._usual(axes, end, scale)
        self._frame(axes, end, unit)
        self._state(axes, end)
        self._heading(figure)
        canvas.draw()
        return _png(canvas.buffer_rgba())

    def _scale(self) -> tuple[float, str]:
        largest = float(np.nanmax(np.abs(self._values)))
        return self.unit.scale(max(largest, abs(self.limit)) if self.limit and self._limit_fits else largest)

    def _lines(self, axes: Axes, scale: float) -> None:
        times = self.window.times
        drawn = np.where(np.isfinite(self.window.values), self.window.values / scale, np.nan)
        heights = np.nan_to_num(drawn, nan=-math.inf).max(axis=1)
        others = [int(index) for index in np.argsort(-heights, kind="stable") if index != self.own]
        for index in others[:_OTHERS]:
            axes.plot(times, drawn[index], color=_FAINT, linewidth=0.8, zorder=2)
        axes.plot(times, drawn[self.own], color=_SIGNAL, linewidth=2.0, zorder=5, solid_capstyle="round")
        lonely = _lonely(drawn[self.own])
        axes.plot(times[lonely], drawn[self.own][lonely], ".", color=_SIGNAL, markersize=4, zorder=5)

    def _heights(self, axes: Axes, scale: float) -> None:
        """Fit the vertical axis to lines and limit; from zero, unless that would hide the shape."""
        low, high = axes.get_ylim()
        if self.limit is not None and self._limit_fits:
            low, high = min(low, self.limit / scale), max(high, self.limit / scale)
        if (band := self._band) is not None:
            low, high = min(low, band.low / scale), max(high, band.high / scale)
        if float(np.nanmin(self._values)) >= 0 and low < 0.6 * high and not (band and band.low < 0):
            low = 0.0
        room = 0.14 * (high - low) or 1.0
        axes.set_ylim(low if low == 0 else low - room, high + room)

    def _limit_line(self, axes: Axes, scale: float) -> None:
        if self.limit is None:
            return
        label = f"limit {self.unit.show(self.limit)}"
        if self._limit_fits:
            bound = self.limit / scale
            axes.axhline(bound, color=_LIMIT, linewidth=1.2, zorder=3)
            self._say(axes, label, (0, bound), (5, 4), xycoords=("axes fraction", "data"), color=_LIMIT)
        else:
            self._say(axes, f"{label}, far off", (0, 1), (5, -13), xycoords="axes fraction", color=_LIMIT)

    def _forecast(self, axes: Axes, scale: float) -> float:
        """Draw the way to the limit and its interval; return where the time axis ends."""
        past, eta, details = self.now - self._start, self._eta, self.alert.details
        if self.limit is None or eta is None or not self._limit_fits:
            return self.now + 0.02 * past
        earliest, latest = details.get("eta_earliest", eta), details.get("eta_latest", math.inf)
        end = self.now + min(1.12 * (latest if math.isfinite(latest) else 1.5 * eta), 1.2 * past)
        level, bound = details.get("level", self._last) / scale, self.limit / scale
        # Without a latest time the bound may never be reached: the interval then opens to the level of now.
        far = (self.now + latest, bound) if math.isfinite(latest) else (2 * end - self.now, level)
        corners = [(self.now, level), (self.now + earliest, bound), far]
        if not math.isfinite(latest):
            corners.insert(2, (2 * end - self.now, bound))
        axes.fill(*zip(*corners, strict=True), color=_LIMIT, alpha=0.13, linewidth=0, zorder=2)
        way = [self.now, self.now + eta], [level, bound]
        axes.plot(*way, color=_LIMIT, linewidth=1.6, zorder=4, dashes=(4, 2))
        if self.now + eta < end:
            axes.plot(self.now + eta, bound, "o", color=_LIMIT, markersize=5, zorder=6)
            when = f"in {span(eta)}, {clock(instant_of(self.now + eta), instant_of(self.now))}"
            # Near the right edge there is room on the left only.
            edge = (past + eta) / (end - self._start) > _EDGE
            side = {"ha": "right" if edge else "center"}
            self._say(
                axes,
                when,
                (self.now + eta, bound),
                (8 if edge else 0, 7),
                color=_LIMIT,
                fontweight="bold",
                **side,
            )
        return end

    def _trend_line(self, axes: Axes, scale: float) -> None:
        """Draw the fitted line, and about its middle the fan of the slopes that it may as well have."""
        trend = self._trend
        if trend is None:
            return
        ends = np.array([trend.start, trend.now])
        low, high = trend.fan(ends)
        axes.fill_between(ends, low / scale, high / scale, color=_PENDING, alpha=0.25, linewidth=0, zorder=3)
        axes.plot(ends, trend.at(ends) / scale, color=_PENDING, linewidth=1.6, zorder=6, dashes=(5, 2))
        # Where the line leaves room: below one that rises, above one that falls.
        rises = trend.slope >= 0
        self._say(
            axes,
            trend.words(self.unit),
            (self.now, 0 if rises else 1),
            (-6, 6 if rises else -14),
            xycoords=("data", "axes fraction"),
            color=_PENDING,
            ha="right",
            fontweight="bold",
        )

    def _usual(self, axes: Axes, end: float, scale: float) -> None:
        """Draw the band of what is usual at its place in time, which is now, and its words right of it."""
        band = self._band
        if band is None:
            return
        width = end - self._start
        ends = [self.now - 0.05 * width, end]
        axes.fill_between(
            ends, band.low / scale, band.high / scale, color=_USUAL, alpha=0.22, linewidth=0, zorder=3
        )
        if not math.isnan(band.expected):
            height = band.expected / scale
            axes.plot(ends, [height, height], color=_USUAL, linewidth=1.4, zorder=4)
        show, middle = self.unit.show, (band.low + band.high) / 2 / scale
        self._say(
            axes,
            f"usual now:\n{show(band.low)}\nto {show(band.high)}",
            (end, middle),
            (6, 0),
            color=_USUAL,
            va="center",
            fontweight="bold",
        )

    def _frame(self, axes: Axes, end: float, unit: str) -> None:
        from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

        ticks = _ticks(self._start, end)
        axes.set_xlim(self._start, end)
        axes.set_xticks(
            ticks, [f"{instant_of(tick):{'%H:%M' if tick % _DAY else '%d %b'}}" for tick in ticks]
        )
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.set_major_formatter(lambda value, _: number(value))
        axes.tick_params(length=0, labelsize=8.5, colors=_SOFT, pad=5)
        axes.grid(axis="y", color=_GRID, linewidth=0.9)
        axes.set_axisbelow(True)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(_FAINT)
        self._say(axes, unit, (0, 1), (-5, 2), xycoords="axes fraction", color=_SOFT, ha="right")
        self._say(axes, "UTC", (1, 0), (4, -12), xycoords="axes fraction", color=_SOFT, fontsize=7.5)

    def _state(self, axes: Axes, end: float) -> None:
        """Shade since when the condition holds, and then since when the alert fires."""
        pending = max(self.alert.active_at.timestamp(), self._start)
        firing = max(self.alert.fired_at.timestamp(), self._start) if self.alert.fired_at else self.now
        for since, until, colour, word in (
            (pending, firing, _PENDING, "pending"),
            (firing, self.now, _LIMIT, "firing"),
        ):
            if until > since:
                axes.axvspan(since, until, color=colour, alpha=0.09, linewidth=0, zorder=1)
            if until - since > 0.08 * (end - self._start):
                middle = (since + until) / 2
                where = ("data", "axes fraction")
                self._say(axes, word, (middle, 1), (0, 2), xycoords=where, color=colour, ha="center")
        if self._eta is not None and self._limit_fits:
            axes.axvline(self.now, color=_SOFT, linewidth=0.8, linestyle=":", zorder=3)
            self._say(axes, "now", (self.now, 0), (4, 4), xycoords=("data", "axes fraction"), color=_SOFT)

    def _heading(self, figure: Figure) -> None:
        labels = self.alert.labels.without(ALERT_NAME, "severity", "component")
        known = cut("   ".join(f"{name}={value}" for name, value in labels.items()), 110)
        # parse_math: a label with two dollar signs is no formula.
        common: dict[str, Any] = {"parse_math": False, "va": "top"}
        bold: dict[str, Any] = {"fontsize": 12, "fontweight": "bold", **common}
        figure.text(0.022, 0.975, cut(self.alert.name, 60), color=_INK, **bold)
        figure.text(0.978, 0.975, self.unit.show(self._last), color=_SIGNAL, ha="right", **bold)
        figure.text(0.022, 0.905, known, fontsize=8, color=_SOFT, **common)

    def _say(self, axes: Axes, text: str, where: Any, offset: tuple[int, int], **style: Any) -> None:
        """Write beside a place, `offset` points away from it."""
        style = {"fontsize": 8.5, "zorder": 7, **style}
        axes.annotate(text, where, xytext=offset, textcoords="offset points", annotation_clip=False, **style)


def _png(pixels: Any) -> bytes:
    """Return the picture in 128 colours: a third of the size, and no eye sees it."""
    from PIL import Image  # noqa: PLC0415 - matplotlib's own dependency

    image = Image.fromarray(np.asarray(pixels)[..., :3])
    out = io.BytesIO()
    image.quantize(128, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(out, "png")
    return out.getvalue()


def _lonely(values: Floats) -> Any:
    """Return where a sample has no neighbour and a line would not show it."""
    there = np.isfinite(values)
    before, after = np.concatenate(([False], there[:-1])), np.concatenate((there[1:], [False]))
    return there & ~before & ~after


def _ticks(start: float, end: float) -> list[float]:
    step = next((step for step in _TICKS if (end - start) / step <= 9), _TICKS[-1])
    return [float(tick) for tick in range(math.ceil(start / step) * step, math.floor(end) + 1, step)]
