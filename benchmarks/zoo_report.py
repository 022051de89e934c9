"""What zoo.py measured, kept in a file that later runs add to, and the tables made of it."""

from __future__ import annotations

import json
import math
import pathlib

COLUMNS = {
    "compiled/torch": "compiled against torch's best mode of those measured",
    "eager/torch": "eager against torch eager, the better layout",
    "compiled/eager": "compiled against our own eager",
    "compiled/compile": "compiled against torch.compile",
    "memory compiled": "peak memory, compiled against torch.compile, or torch eager where that was not measured",
    "memory eager": "peak memory, eager against torch eager",
    "first": "first compiled step against torch.compile's",
}


def ratios(result: dict) -> dict[str, float]:
    """Of one model: {column: ours divided by theirs}, nan where one of them is missing."""
    get = lambda name, what: (result.get(name) or {}).get(what) or math.nan
    least = lambda names, what: min((v for n in names if not math.isnan(v := get(n, what))), default=math.nan)
    theirs = [n for n in result if n.startswith("torch")]
    plain, joined = (
        ("torch eager", "torch channels_last"),
        ("torch compile", "torch compile_last", "torch reduce-overhead"),
    )
    joined_memory = least(joined, "peak")
    return {
        "compiled/torch": get("tandem compiled", "ms") / least(theirs, "ms"),
        "eager/torch": get("tandem eager", "ms") / least(plain, "ms"),
        "compiled/eager": get("tandem compiled", "ms") / get("tandem eager", "ms"),
        "compiled/compile": get("tandem compiled", "ms") / least(joined, "ms"),
        "memory compiled": get("tandem compiled", "peak")
        / (get("torch eager", "peak") if math.isnan(joined_memory) else joined_memory),
        "memory eager": get("tandem eager", "peak") / get("torch eager", "peak"),
        "first": get("tandem compiled", "cold") / least(joined, "cold"),
    }


def header(kind: str) -> str:
    return f"{kind:22} " + " ".join(f"{c:>16}" for c in COLUMNS) + "   ms"


def row(model: str, result: dict) -> str:
    numbers = " ".join(f"{v:16.2f}" if math.isfinite(v) else f"{'-':>16}" for v in ratios(result).values())
    times = "  ".join(f"{n} {r['ms']:.2f}" for n, r in result.items())
    return f"{model:22} {numbers}   {times}"


def summary(rows: list[dict]) -> list[str]:
    """Geometric means and worst ones of some models, by column."""
    lines = []
    for name, reduce in (("geometric mean", mean), ("worst", max)):
        columns = ([v for v in column if math.isfinite(v)] for column in zip(*(ratios(r).values() for r in rows)))
        lines.append(f"{name:22} " + " ".join(f"{reduce(c):16.2f}" if c else f"{'-':>16}" for c in columns))
    return lines


def mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def keep(file: str, results: dict):
    """Adds to a file: a mode that was measured again replaces what was there."""
    path = pathlib.Path(file)
    kept = json.loads(path.read_text()) if path.exists() else {}
    for name, result in results.items():
        kept[name] = kept.get(name, {}) | result
    path.write_text(json.dumps(kept, indent=1))


def report(file: str):
    kept = json.loads(pathlib.Path(file).read_text())
    for kind in dict.fromkeys(name.split()[0] for name in kept):
        rows = {name.split()[1]: result for name, result in kept.items() if name.split()[0] == kind}
        print(header(kind))
        for model, result in rows.items():
            print(row(model, result))
        print("\n".join(summary(list(rows.values()))), flush=True)
