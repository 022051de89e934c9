"""Inference of ONNX files: this library and onnxruntime, two threads and a process each, in turns.

python benchmarks/inference.py                            MobileNet-v2, ResNet-50 and BERT, exported by this library
python benchmarks/inference.py --batch 16
python benchmarks/inference.py --wheels build/wheels      the ONNX files of packages (onnx_files.py), brought into that folder
python benchmarks/inference.py a.onnx b.onnx --size 96    files; free sizes but the first are --size

python benchmarks/inference.py --busy                     beside a process that never sleeps: means instead of least times
python benchmarks/inference.py --cpu-time --threads 1     on a busy machine: least processor times of one thread

A time is the best of a call, a ratio is ours over theirs; the largest difference of results is printed beside it. Ours is frozen
(`td.export.freeze`), theirs has all its optimisations on. --peer PYTHON: an interpreter that has
onnxruntime, where this one has not.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx_files

MODELS = ("mobilenet_v2", "resnet50", "bert")
BAR = 0.95


def export(name: str, folder: Path, batch: int) -> Path:
    import tandem as td

    td.manual_seed(0)
    path = folder / f"{name}.onnx"
    if name == "bert":
        model, example = td.models.BERT(), td.ones(2, 128, dtype=td.int64)
    else:
        model = td.models.resnet50() if name == "resnet50" else td.models.MobileNetV2()
        example = td.randn(2, 3, 224, 224)
    td.onnx.save(model.eval(), example, path)
    return path


def inputs_of(path: str, batch: int, size: int) -> dict[str, np.ndarray]:
    import onnx

    rng = np.random.default_rng(0)
    known = onnx_files.inputs_of(path)
    if known:
        return {name: described.array(batch, rng) for name, described in known.items()}
    graph = onnx.load(path, load_external_data=False).graph
    weights = {t.name for t in graph.initializer}
    made = {}
    for value in graph.input:
        if value.name in weights:
            continue
        kind = value.type.tensor_type
        dims = [d.dim_value if d.dim_value > 0 else None for d in kind.shape.dim]
        shape = [d or (batch if axis == 0 else size) for axis, d in enumerate(dims)]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        whole = np.issubdtype(dtype, np.integer)
        made[value.name] = (rng.integers(0, 200, shape) if whole else rng.standard_normal(shape)).astype(dtype)
    return made


def tandem_run(path: str, inputs: dict, threads: int = 2):
    import tandem as td

    td.set_num_threads(threads)
    tensors = {k: td.tensor(v) for k, v in inputs.items() if v.ndim}
    settings = {k: v.item() for k, v in inputs.items() if not v.ndim}
    loaded = td.onnx.load(path).eval()
    model = td.export.freeze(
        lambda *given: loaded(**dict(zip(tensors, given, strict=True)), **settings),
        tuple(tensors.values()),
        dynamic=False,
    )

    def run():
        with td.no_grad():
            results = model(*tensors.values())
        return results if isinstance(results, tuple) else (results,)

    return run


def onnxruntime_run(path: str, inputs: dict, threads: int):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


def work(library: str, path: str, answers: str, options):
    """One process: prepares, then measures for half a second at every line of standard input."""
    prepare = {"tandem": tandem_run, "onnxruntime": onnxruntime_run}[library]
    run, clock = prepare(path, inputs_of(path, options.batch, options.size), options.threads), time.perf_counter
    if options.cpu_time:
        clock = time.process_time
    results = [np.asarray(r.numpy() if hasattr(r, "numpy") else r) for r in run()]
    np.savez(answers, *results)
    print("ready", flush=True)
    for _ in sys.stdin:
        times, started = [], time.perf_counter()
        while len(times) < 5 or time.perf_counter() - started < 0.5:
            before = clock()
            run()
            times.append(clock() - before)
        print(sum(times) / len(times) if options.busy else min(times), flush=True)


class _Failed(Exception):
    """A library does not run a file."""


@contextlib.contextmanager
def neighbour(wanted: bool):
    """A process that wants a core all the time."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if wanted else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def compare(path: str, options) -> tuple[dict[str, float], float]:
    settings = ["--batch", str(options.batch), "--size", str(options.size), "--threads", str(options.threads)]
    settings += [flag for flag, given in (("--busy", options.busy), ("--cpu-time", options.cpu_time)) if given]
    with tempfile.TemporaryDirectory() as folder, neighbour(options.busy):
        workers, answers = {}, {}
        for library in ("tandem", "onnxruntime"):
            answers[library] = f"{folder}/{library}.npz"
            python = sys.executable if library == "tandem" else options.peer
            command = [python, __file__, path, *settings, "--worker", library, answers[library]]
            workers[library] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if workers[library].stdout.readline() != "ready\n":
                raise _Failed(f"{library} failed")
        best = dict.fromkeys(workers, float("inf"))
        for _ in range(options.rounds):
            for library, worker in workers.items():
                print(file=worker.stdin, flush=True)
                best[library] = min(best[library], float(worker.stdout.readline()))
        for worker in workers.values():
            worker.stdin.close()
            worker.wait()
        ours, theirs = (list(np.load(a).values()) for a in answers.values())
        return best, max(_difference(a, b) for a, b in zip(ours, theirs, strict=True))


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) if a.size else 0.0


def _label(name: str) -> str:
    """The package and the file."""
    parts = Path(name).with_suffix("").parts
    return "/".join([parts[-2], parts[-1]] if len(parts) > 1 else parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="ONNX files, or names of models of this library")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--wheels", type=Path, metavar="FOLDER")
    parser.add_argument("--peer", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="processor time in place of time")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker[0], options.files[0], options.worker[1], options)
        return
    names = options.files or (onnx_files.fetch(options.wheels) if options.wheels else MODELS)
    print(f"batch {options.batch}, milliseconds; bar {BAR}")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = str(export(name, Path(folder), options.batch) if name in MODELS else name)
            try:
                best, difference = compare(path, options)
            except _Failed as failure:
                print(f"{_label(name):40} {failure}", flush=True)
                continue
            ratio = best["tandem"] / best["onnxruntime"]
            print(f"{_label(name):40} tandem {best['tandem'] * 1e3:8.2f}  onnxruntime {best['onnxruntime'] * 1e3:8.2f}"
                  f"  {ratio:5.2f}x{'' if ratio <= BAR else '  missed'}  difference {difference:.1e}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
