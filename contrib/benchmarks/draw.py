#!/usr/bin/env python3
"""Draw what relay bench --json has written, as SVG.

    python3 contrib/benchmarks/draw.py DIR FILE...

Each picture shows the figures of one run, since figures of two runs do not
compare. A picture that lacks figures is not drawn, and a line says why.
"""

import bisect
import collections
import datetime
import html
import json
import math
import os
import re
import sys

WIDTH, LEFT, RIGHT, HEIGHT = 700, 74, 676, 260  # of the picture; of the plot
ROW = 20  # of the legend
INSET = 34  # from the axis to the first and to the last x
CHARACTER = 6.8  # the width of one, roughly
NUMBERED = 22.0  # the narrowest bar with a number
TICKS = 8  # at most
COLOURS = 6
SHAPES = [
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "m-4 -4h8v8h-8z", "m0 -5l5 9h-10z",
    "m0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
]
FORMAT = 1
LARGEST = 1e12  # the largest figure for which there is room

# Each colour stands out from the ground, in a light and in a dark page.
STYLE = """text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#1f2328}
.title{font-size:16px;font-weight:600}.soft{font-size:12px;fill:#59636e}.number{font-size:11px}
.ground{fill:#fff}.grid{stroke:#d1d9e0}.axis{stroke:#59636e}.line{fill:none;stroke-width:2}.mark{stroke-width:2}.hollow{fill:#fff}
.s0{stroke:#0969da}.s1{stroke:#bc4c00}.s2{stroke:#1a7f37}.s3{stroke:#8250df}.s4{stroke:#bf3989}.s5{stroke:#57606a}
.f0{fill:#0969da}.f1{fill:#bc4c00}.f2{fill:#1a7f37}.f3{fill:#8250df}.f4{fill:#bf3989}.f5{fill:#57606a}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9198a1}.ground,.hollow{fill:#0d1117}.grid{stroke:#3d444d}.axis{stroke:#9198a1}
.s0{stroke:#58a6ff}.s1{stroke:#f0883e}.s2{stroke:#3fb950}.s3{stroke:#bc8cff}.s4{stroke:#f778ba}.s5{stroke:#b1bac4}
.f0{fill:#58a6ff}.f1{fill:#f0883e}.f2{fill:#3fb950}.f3{fill:#bc8cff}.f4{fill:#f778ba}.f5{fill:#b1bac4}}
"""

# A series has a name and its points, by x. A doubtful point is drawn hollow.
Series = collections.namedtuple("Series", "name points")
Point = collections.namedtuple("Point", "x y doubtful")
# x and y of a Chart are the titles of the axes, at and unit what their figures count.
# why says what is missing if there are no series; log, that y is logarithmic.
Chart = collections.namedtuple("Chart", "file title x at y unit series why bars log", defaults=(False, False))

CONNECTIONS = "connections, each with one message under way (logarithmic)"
SENDS = [
    ("send", "durable", "durable: on disk when the 201 comes"),
    ("send", "bare", "bare: durable, and in no conversation"),
    ("send", "lean", "lean: a server that only checks requests"),
]
# Each does more than the one before.
COSTS = [
    ("send", "lean", "lean: the request is only checked"),
    ("send", "durable", "durable: and it is on disk"),
    ("ack", "send to receipt", "ack: and pushed, acknowledged, receipt"),
]


def charts(run):
    """The charts of a run. One that lacks figures has no series."""
    rows = run["rows"]
    no_sends = "there are no figures of the stage send"
    return [
        Chart("throughput.svg", "Messages accepted in a second, over connections", CONNECTIONS, "connections",
              "messages/s", "messages/s", cases(rows, SENDS, "per_second"), no_sends),
        Chart("p99.svg", "p99 of the time until a message is accepted, over connections", CONNECTIONS, "connections",
              "p99, ms (logarithmic)", "ms", cases(rows, SENDS, "p99_us", 1000), no_sends, log=True),
        Chart("cpu.svg", "CPU time of the server for a message, by what is done with it",
              "connections (with ack: pairs of Mechas), each with one message under way", "connections",
              "µs of CPU", "µs", cases(rows, COSTS, "server_cpu_us"),
              "there is no CPU time of the server in the stages send and ack; "
              "only Linux has it, of a relay that bench started",
              bars=True),
        Chart("stored.svg", "Messages accepted in a second, over messages stored",
              "messages in the database before (logarithmic)", "stored", "messages/s", "messages/s", filled(rows),
              "there are no figures of the stage scale, which needs --stored"),
    ]


def cases(rows, wanted, figure, parts=1):
    """A series of each case that has figures, over the number of connections."""
    found = []
    for stage, name, label in wanted:
        points = [Point(r["at"], r[figure] / parts, bool(r.get("doubts"))) for r in rows
                  if (r.get("stage"), r.get("case")) == (stage, name) and r.get("at", 0) > 0 and r.get(figure, 0) > 0]
        if points:
            found.append(Series(label, sorted(points, key=lambda p: p.x)))
    return found


def filled(rows):
    """A series for each number of connections, over the messages stored."""
    found = {}
    for r in rows:
        if r.get("stage") != "scale" or r.get("unit") != "messages" or "ratio" in r:
            continue
        if r.get("stored_messages", 0) < 1 or r.get("per_second", 0) <= 0:
            continue
        name = "1 connection" if r.get("at") == 1 else f"{r.get('at', 0):,} connections"
        found.setdefault(name, []).append(Point(r["stored_messages"], r["per_second"], bool(r.get("doubts"))))
    return [Series(name, sorted(points, key=lambda p: p.x)) for name, points in found.items()]


def about(run):
    """Says, in lines, which run it was."""
    began = datetime.datetime.fromisoformat(run["began_at"].replace("Z", "+00:00")).astimezone(datetime.timezone.utc)
    whose = "relay " + clip(run["relay"], 40) + (", which ran already" if run.get("url") else "")
    rounds = f"the median of {run['repeats']} rounds of {run['duration_seconds']:g} s"
    if run["repeats"] == 1:
        rounds = f"one round of {run['duration_seconds']:g} s"
    return [
        f"{whose}, {clip(run['go'], 20)}, {clip(run['system'], 20)}, {run['cpus']} CPUs, "
        f"{began.day} {began:%B %Y, %H:%M} UTC",
        f"payloads of {run['payload_bytes']} bytes, {run['mechas']:,} Mechas, {rounds}",
    ]


def clip(text, most):
    return text if len(text) <= most else text[:most - 1] + "…"


class Scale:
    """Gives values, which are above 0, their places along an axis, in pixels."""

    def __init__(self, low, high, begin, end, log):
        self.value = math.log if log else float
        self.low, self.high, self.begin, self.end = self.value(low), self.value(high), begin, end

    def at(self, v):
        if self.low == self.high:
            return (self.begin + self.end) / 2
        return self.begin + (self.value(v) - self.low) / (self.high - self.low) * (self.end - self.begin)


def round125(n):
    """1, 2 or 5 times a power of ten: number 0 is 1, number 1 is 2, number 3 is 10, number -1 is 0.5."""
    return float(f"{[1, 2, 5][n % 3]}e{n // 3}")


def at_most(v):
    """The number of the largest round number that is not above v."""
    n = 3 * math.floor(math.log10(v))
    while round125(n) > v:
        n -= 1
    while round125(n + 1) <= v:
        n += 1
    return n


def steps(last):
    """Equal steps from 0 to the first that is not below the last value."""
    n = at_most(last / (TICKS - 1))
    while math.ceil(last / round125(n)) > TICKS - 1:
        n += 1
    return [i * round125(n) for i in range(math.ceil(last / round125(n)) + 1)]


def powers(first, last):
    """Round numbers, each several times the one before, that enclose both values."""
    low, high = at_most(first), at_most(last)
    if round125(high) < last or high == low:
        high += 1
    every = 1
    if high - low >= TICKS:  # whole powers of ten
        low, high = 3 * math.floor(low / 3), 3 * math.ceil(high / 3)
        every = 3 * ((high - low) // 3 // TICKS + 1)
    ticks = list(range(low, high, every))
    return [round125(n) for n in ticks + [ticks[-1] + every]]


def figure(v):
    """A number for people, with three digits that count."""
    return f"{math.floor(v + .5):,}" if 100 <= v < 1e9 else f"{v:.3g}"


def escaped(text):
    """Text of which no character is markup."""
    return html.escape(re.sub("[\0-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]", "\ufffd", text))


class Drawing:
    """A chart under way: lines over a logarithmic x, or groups of bars."""

    def __init__(self, chart, lines):
        self.chart, self.lines, self.out = chart, lines, []
        points = [p for s in chart.series for p in s.points]
        self.xs, ys = sorted({p.x for p in points}), [p.y for p in points]
        self.top = 46 + 17 * len(lines) + ROW * ((len(chart.series) + 1) // 2) + 30
        self.bottom = self.top + HEIGHT
        self.doubtful = any(p.doubtful for p in points)
        self.height = self.bottom + 54 + 20 * self.doubtful
        self.ticks = powers(min(ys), max(ys)) if chart.log else steps(max(ys))
        self.across = Scale(self.xs[0], self.xs[-1], LEFT + INSET, RIGHT - INSET, True)
        self.up = Scale(self.ticks[0], self.ticks[-1], self.bottom, self.top, chart.log)

    def svg(self):
        c, w, h = self.chart, WIDTH, self.height
        self.out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" '
            'role="img" aria-labelledby="title figures">',
            f'\n<title id="title">{escaped(c.title)}</title>\n<desc id="figures">{escaped(self.words())}</desc>',
            f'\n<style>{STYLE}</style>\n<rect class="ground" width="{w}" height="{h}"/>\n']
        self.text("title", 16, 28, "start", c.title)
        for i, line in enumerate(self.lines):
            self.text("soft", 16, 48 + 17 * i, "start", line)
        self.legend(46 + 17 * len(self.lines) + 14)
        self.axes()
        for i, s in enumerate(c.series):
            (self.bars if c.bars else self.line)(i, s)
        if self.doubtful:
            self.text("soft", 16, h - 10, "start",
                      "Hollow: the figure cannot be trusted. relay bench says why in its table and in its JSON.")
        return "".join(self.out + ["</svg>\n"])

    def words(self):
        """All figures of the picture, for those who do not see it."""
        said = [f"{s.name}: " + "; ".join(self.tells(p) for p in s.points) + ". " for s in self.chart.series]
        return "".join(said) + "; ".join(self.lines) + "."

    def tells(self, p):
        at = self.chart.at.removesuffix("s") if p.x == 1 else self.chart.at
        return f"{figure(p.y)} {self.chart.unit} at {figure(p.x)} {at}" + (" (cannot be trusted)" if p.doubtful else "")

    def text(self, kind, x, y, anchor, text):
        self.out.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escaped(text)}</text>\n')

    def legend(self, y):
        """Names the series, in two columns."""
        for i, s in enumerate(self.chart.series):
            x, at = 22 + i % 2 * 340, y + i // 2 * ROW
            if self.chart.bars:
                self.out.append(
                    f'<rect class="f{i % COLOURS}" x="{x - 6:.1f}" y="{at - 10:.1f}" width="12" height="12"/>')
            else:
                self.out.append(f'<path class="line s{i % COLOURS}" d="M{x - 6:.1f} {at - 4:.1f}h24"/>')
                self.mark(i, x + 6, at - 4, False)
            self.text("", x + 26, at, "start", clip(s.name, 46))

    def axes(self):
        self.text("soft", 16, self.top - 12, "start", self.chart.y)
        for v in self.ticks:
            y = self.up.at(v)
            self.out.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>')
            self.text("", LEFT - 8, y + 4, "end", figure(v))
        end = 0  # of the number before
        for v in self.xs:
            x, half = self.middle(v), CHARACTER * len(figure(v)) / 2
            self.out.append(f'<path class="axis" d="M{x:.1f} {self.bottom:.1f}v5"/>')
            if x - half > end:
                self.text("", x, self.bottom + 20, "middle", figure(v))
                end = x + half + CHARACTER
        self.out.append(f'<path class="axis" d="M{LEFT} {self.bottom:.1f}H{RIGHT}"/>')
        self.text("soft", (LEFT + RIGHT) // 2, self.bottom + 42, "middle", self.chart.x)

    def middle(self, x):
        """The place of an x: on a line by its value, of bars by its number."""
        if self.chart.bars:
            return LEFT + (bisect.bisect_left(self.xs, x) + .5) * (RIGHT - LEFT) / len(self.xs)
        return self.across.at(x)

    def line(self, i, s):
        places = [f"{self.across.at(p.x):.1f} {self.up.at(p.y):.1f}" for p in s.points]
        self.out.append(f'\n<path class="line s{i % COLOURS}" d="M{"L".join(places)}"/>')
        for p in s.points:
            self.out.append(f"\n<g><title>{escaped(s.name)}: {escaped(self.tells(p))}</title>")
            self.mark(i, self.across.at(p.x), self.up.at(p.y), p.doubtful)
            self.out.append("</g>")
        self.out.append("\n")

    def mark(self, i, x, y, doubtful):
        """A point of a series. Shapes differ, for those to whom colours look alike."""
        fill = "hollow" if doubtful else f"f{i % COLOURS}"
        self.out.append(f'<path class="mark s{i % COLOURS} {fill}" d="M{x:.1f} {y:.1f}{SHAPES[i % len(SHAPES)]}"/>')

    def bars(self, i, s):
        """The bars of a series, each in the group of its x."""
        n = len(self.chart.series)
        wide = min(.84 * (RIGHT - LEFT) / len(self.xs) / n, 34)
        for p in s.points:
            x, y = self.middle(p.x) + (i - n / 2) * wide, self.up.at(p.y)
            fill = "hollow" if p.doubtful else f"f{i % COLOURS}"
            self.out.append(
                f'\n<g><title>{escaped(s.name)}: {escaped(self.tells(p))}</title>'
                f'<rect class="mark s{i % COLOURS} {fill}" x="{x + wide * .08 + 1:.1f}"'
                f' y="{y:.1f}" width="{max(wide * .84 - 2, 1):.1f}" height="{max(self.bottom - y, 0):.1f}"/></g>')
            if wide >= NUMBERED:
                self.text("number", x + wide / 2, y - 5, "middle", figure(p.y))
        self.out.append("\n")


def read(name):
    """Reads what relay bench --json has written; refuses another format, and figures that no run gives."""
    try:
        with open(name, encoding="utf-8") as f:
            run = json.load(f)
    except (OSError, ValueError) as e:
        sys.exit(f"{name}: it is not what relay bench --json writes: {e}")
    if not isinstance(run, dict) or "format" not in run:
        sys.exit(f"{name}: it has no format: it is not what relay bench --json writes, or an older relay wrote it")
    if run["format"] != FORMAT:
        sys.exit(f"{name}: it has the format {run['format']}, and this program reads {FORMAT}")
    for i, row in enumerate(run["rows"]):
        for key in ["at", "per_second", "p99_us", "server_cpu_us", "stored_messages"]:
            v = row.get(key, 0)
            if not isinstance(v, (int, float)) or not 0 <= v <= LARGEST:
                sys.exit(f"{name}: row {i + 1} says {key}: {v}, which no run gives")
    return run


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    folder, drawn, missing = sys.argv[1], {}, {}
    for name in sys.argv[2:]:
        run = read(name)
        for chart in charts(run):
            if not chart.series:
                missing[chart.file] = chart.why
                continue
            if chart.file in drawn:
                sys.exit(f"{drawn[chart.file][0]} and {name} both have the figures of {chart.file}, and figures of "
                         "two runs do not compare: draw them into two folders")
            drawn[chart.file] = name, Drawing(chart, about(run)).svg()
    for file, why in missing.items():
        if file not in drawn:
            print(f"not drawn: {file} ({why})", flush=True)
    if not drawn:
        sys.exit("nothing is drawn")
    os.makedirs(folder, exist_ok=True)
    for file, (_, svg) in drawn.items():
        with open(os.path.join(folder, file), "w", encoding="utf-8", newline="\n") as f:
            f.write(svg)
        print("drawn:", os.path.join(folder, file))


if __name__ == "__main__":
    main()
