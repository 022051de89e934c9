"""Tandem beside its peers: one process each, two threads each, rounds interleaved, best times, ratios against bars.

python benchmarks/foundation.py [--quick] [--case 'matmul*'] [--json FILE] [--torch-python PATH]
"""

import argparse
import fnmatch
import os
import pathlib
import platform
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from cases import BUSY, FIRST_USE, NEW_SHAPE, THROUGHPUT
from runner import Peer, Row, as_json, busy, first_use, new_shape, throughput

FIRST = "first use of a kernel"
SHAPES = "known op, new shape"
NEIGHBOUR = "busy neighbour on one core"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: a first look, not a result")
    parser.add_argument(
        "--case", action="append", metavar="PATTERN", help="only cases or sections that match; repeatable"
    )
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and stop")
    parser.add_argument("--tandem-python", default=sys.executable, metavar="PATH", help="interpreter that has tandem")
    parser.add_argument("--torch-python", default=sys.executable, metavar="PATH", help="interpreter that has torch")
    parser.add_argument("--tensorflow-python", metavar="PATH", help="interpreter that has tensorflow; default: torch's")
    parser.add_argument(
        "--ours", default="tandem", metavar="ADAPTER", help="what stands in for us, to test the harness"
    )
    return parser.parse_args()


def seconds(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) < 1e-3:
        return f"{value * 1e6:.2f} µs"
    return f"{value * 1e3:.2f} ms" if value < 1 else f"{value:.2f} s"


class Table:
    """Prints a section as soon as it is done: a full run takes minutes."""

    def __init__(self):
        from rich.console import Console

        self.console = Console(width=None if sys.stdout.isatty() else 140)

    def show(self, section: str, rows: list[Row]):
        from rich.table import Table

        table = Table(title=section, title_justify="left", title_style="bold", header_style="")
        table.add_column("case", min_width=47)
        for column in ("ours", "theirs", "ratio", "bar"):
            table.add_column(column, justify="right")
        table.add_column("")
        table.add_column("")
        for row in rows:
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
            verdict = "[green]ok" if row.ok else "[red]MISS"
            note = " ".join(filter(None, [row.against, row.note]))
            table.add_row(row.case, seconds(row.ours), seconds(row.theirs), ratio, row.bar, verdict, note)
        self.console.print(table)


def machine(peers: list[Peer]) -> dict:
    processor = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        lines = [
            line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")
        ]
        processor = lines[0].partition(":")[2].strip() if lines else processor
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "versions": {peer.name: peer.version for peer in peers},
    }


def main() -> int:
    options = arguments()
    rounds, budget = (2, 0.1) if options.quick else (5, 0.75)

    def chosen(section, cases):
        patterns = options.case or ["*"]
        return [c for c in cases if any(fnmatch.fnmatch(c.name, p) or fnmatch.fnmatch(section, p) for p in patterns)]

    plan = {name: chosen(name, cases) for name, cases in
            {**THROUGHPUT, FIRST: FIRST_USE, SHAPES: NEW_SHAPE, NEIGHBOUR: BUSY}.items()}  # fmt: skip
    if options.list:
        for section, cases in plan.items():
            print(section, *(f"  {case.name}" for case in cases), sep="\n")
        return 0

    ours_python = options.tandem_python if options.ours == "tandem" else options.torch_python
    ours = Peer(options.ours, ours_python)
    if ours.version is None:
        sys.exit(f"{options.ours} does not start in {ours_python}: {ours.ask(do='hello')['error']}")
    peers = {}
    for name, python in {
        "torch": options.torch_python,
        "tensorflow": options.tensorflow_python or options.torch_python,
    }.items():
        peer = Peer(name, python)
        if peer.version is None:
            print(f"without {name}: it does not start in {python} (--{name}-python names another interpreter)")
        else:
            peers[name] = peer
    facts = machine([ours, *peers.values()])
    print(", ".join(f"{key}: {value}" for key, value in facts.items()))
    if facts["load"] > 0.5:
        print("The machine is busy with something else; times will be off.")

    table, rows = Table(), []
    for section, cases in plan.items():
        found = []
        for case in cases:
            if section in THROUGHPUT:
                found += throughput(section, case, ours, peers, rounds, budget)
            elif section == SHAPES:
                found.append(new_shape(section, case, ours, rounds))
            elif section == NEIGHBOUR and len(os.sched_getaffinity(0)) > 1:
                found.append(busy(section, case, ours, None if options.quick else peers.get("torch"), 2, 2 * budget))
        if section == FIRST and cases:
            found = first_use(section, cases, options.ours, ours_python, rounds=2 if options.quick else 3)
        if found:
            table.show(section, found)
        rows += found
    for peer in [ours, *peers.values()]:
        peer.close()
    missed = [row for row in rows if not row.ok]
    print(f"{len(rows) - len(missed)} of {len(rows)} bars reached")
    if options.json:
        pathlib.Path(options.json).write_text(as_json(rows, facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
