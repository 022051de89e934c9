"""Two builds of Tandem side by side: what a call of an operator, a small step, an import and a cold start cost in each.

before_after.py BEFORE AFTER [--case PATTERN] [--rounds N] [--prebuilt]

BEFORE and AFTER are interpreters of two virtual environments, such as ../before/.venv/bin/python and .venv/bin/python. Rounds
take turns, each in a process of its own; of every time the least counts, and the last column is AFTER over BEFORE. Build both in
the same way. Kernels that come with the package are left out of cold starts on both sides, unless --prebuilt is given.
"""

import argparse
import fnmatch
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
BAR, COLD_BAR = 1.03, 0.8
COLD = ("gpt_mini", "resnet50")


def statements() -> dict:
    """name: a function of no arguments. Shapes are so small that what is timed is the work around the kernels."""
    import tandem as td
    from tandem import nn
    from tandem.nn import functional as F

    td.manual_seed(0)
    x, y, w = td.ones(8), td.ones(8), td.ones(8, requires_grad=True)
    rows = td.ones(8, 8)
    images, labels = td.randn(32, 32), td.arange(32) % 10

    def network(sizes):
        layers = []
        for i, (n, m) in enumerate(itertools.pairwise(sizes)):
            layers += [nn.ReLU()] * (i > 0) + [nn.Linear(n, m)]
        return nn.Sequential(*layers)

    model = network([32, 64, 64, 10])

    def forward_backward():
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        for p in model.parameters():
            p.grad = None

    def training(model, inputs):
        optimizer = td.optim.SGD(model.parameters(), lr=0.01)

        def step():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            return loss

        return step

    compiled = td.compile(lambda a, b: (a + b) * a)
    sizes = [16] * 129
    return {
        "add": lambda: x + y,
        "sum": lambda: rows.sum(0),
        "add with gradient": lambda: w + y,
        "forward and backward": forward_backward,
        "step": training(network([32, 64, 64, 10]), images),
        "compiled call": lambda: compiled(x, y),
        "compiled step": td.compile(training(network([32, 64, 64, 10]), images)),
        "128 layers": training(network(sizes), td.randn(32, 16)),
        "128 layers compiled": td.compile(training(network(sizes), td.randn(32, 16))),
    }


def least_time(function, seconds: float) -> float:
    for _ in range(5):
        function()
    started = time.perf_counter()
    function()
    calls = max(1, int(0.002 / (time.perf_counter() - started)))
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, (time.perf_counter() - started) / calls)
    return best


def hot(names: list[str], seconds: float) -> dict:
    known = statements()
    return {name: least_time(known[name], seconds) for name in names if name in known}


def cold(case: str) -> dict:
    """The first step of startup.py's training function beyond what a step takes."""
    sys.path.insert(0, str(HERE.parent))
    import startup

    step, batch, (size, _) = startup.build(case)
    data = batch(size)
    startup.touch_memory()

    def timed() -> float:
        started = time.perf_counter()
        step(*data).item()
        return time.perf_counter() - started

    first = timed()
    timed()  # of some optimisers the second step is a program of its own
    return {f"cold {case}": first - min(timed() for _ in range(3))}


def ask(python: str, *arguments: str, prebuilt: bool, cache: str | None = None) -> dict:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {"TANDEM_NUM_THREADS": "2"}
    environment |= {} if prebuilt else {"TANDEM_PREBUILT": "0"}
    if cache:
        environment["TANDEM_CACHE_DIR"] = cache
    started = time.perf_counter()
    done = subprocess.run([python, *arguments], capture_output=True, text=True, env=environment)
    taken = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{python} {' '.join(arguments)}:\n{done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {"import": taken}


def one_round(python: str, names: list[str], options) -> dict:
    """All times of one build, each in a fresh process; the kernels of hot statements are found on disk."""
    times = {}
    hot_names = [n for n in names if not n.startswith(("import", "cold"))]
    if hot_names:
        times |= ask(
            python, str(HERE), "--hot", json.dumps(hot_names), "--seconds", str(options.seconds), prebuilt=True
        )
    if "import" in names:
        times |= ask(python, "-c", "import tandem", prebuilt=options.prebuilt)
    for case in COLD:
        if f"cold {case}" in names:
            with tempfile.TemporaryDirectory() as cache:
                times |= ask(python, str(HERE), "--cold", case, prebuilt=options.prebuilt, cache=cache)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", nargs="?")
    parser.add_argument("after", nargs="?")
    parser.add_argument("--case", action="append", metavar="PATTERN", help="only cases that match; repeatable")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.15, help="for one statement in one round")
    parser.add_argument(
        "--prebuilt", action="store_true", help="cold starts with the kernels that come with the package"
    )
    parser.add_argument("--hot", help=argparse.SUPPRESS)
    parser.add_argument("--cold", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hot:
        print(json.dumps(hot(json.loads(options.hot), options.seconds)))
        return
    if options.cold:
        print(json.dumps(cold(options.cold)))
        return
    if not options.after:
        parser.error("two interpreters are needed")
    every = ["add", "sum", "add with gradient", "forward and backward", "step", "compiled call", "compiled step", "128 layers",
             "128 layers compiled", "import", *(f"cold {case}" for case in COLD)]  # fmt: skip
    names = [n for n in every if any(fnmatch.fnmatch(n, p) for p in options.case or ["*"])]
    if not names:
        parser.error(f"no case matches; there are: {', '.join(every)}")
    rounds = {python: [] for python in (options.before, options.after)}
    for _ in range(options.rounds):
        for python, made in rounds.items():
            made.append(one_round(python, names, options))
    for name in names:
        before, after = (min(made[name] for made in rounds[p]) for p in (options.before, options.after))
        unit, scale = ("ms", 1e3) if before > 1e-2 else ("us", 1e6)
        bar = COLD_BAR if name.startswith("cold") else BAR
        verdict = "" if after / before <= bar else f"   over {bar}"
        print(
            f"{name:22} {before * scale:9.2f} {after * scale:9.2f} {unit}   {after / before:.3f}{verdict}", flush=True
        )


if __name__ == "__main__":
    main()
