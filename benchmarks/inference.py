"""Inference of ONNX files: this library and onnxruntime, two threads and a process each, in turns.

python benchmarks/inference.py                            MobileNet-v2, ResNet-50 and BERT, exported by this library
python benchmarks/inference.py --batch 16
python benchmarks/inference.py --wheels build/wheels      the ONNX files of packages (onnx_files.py), brought into that folder
python benchmarks/inference.py a.onnx b.onnx --size 96    files; free sizes but the first are --size

A time is the best of a call, a ratio is ours over theirs; the largest difference of results is printed beside it. Ours is frozen
(`td.export.freeze`), theirs has all its optimisations on. --peer PYTHON: an interpreter that has
onnxruntime, where this one has not.
"""

from __future__ import annotations

import argparse
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


def tandem_run(path: str, inputs: dict):
    import tandem as td

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


def onnxruntime_run(path: str, inputs: dict):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


def work(library: str, path: str, batch: int, size: int, answers: str):
    """One process: prepares, then measures for half a second at every line of standard input."""
    run = {"tandem": tandem_run, "onnxruntime": onnxruntime_run}[library](path, inputs_of(path, batch, size))
    results = [np.asarray(r.numpy() if hasattr(r, "numpy") else r) for r in run()]
    np.savez(answers, *results)
    print("ready", flush=True)
    for _ in sys.stdin:
        best, started, calls = float("inf"), time.perf_counter(), 0
        while calls < 5 or time.perf_counter() - started < 0.5:
            before = time.perf_counter()
            run()
            best, calls = min(best, time.perf_counter() - before), calls + 1
        print(best, flush=True)


class _Failed(Exception):
    """A library does not run a file."""


def compare(path: str, batch: int, size: int, rounds: int, peer: str) -> tuple[dict[str, float], float]:
    with tempfile.TemporaryDirectory() as folder:
        workers, answers = {}, {}
        for library in ("tandem", "onnxruntime"):
            answers[library] = f"{folder}/{library}.npz"
            python = sys.executable if library == "tandem" else peer
            command = [python, __file__, path, "--batch", str(batch), "--size", str(size),
                       "--worker", library, answers[library]]  # fmt: skip
            workers[library] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if workers[library].stdout.readline() != "ready\n":
                raise _Failed(f"{library} failed")
        best = dict.fromkeys(workers, float("inf"))
        for _ in range(rounds):
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="ONNX files, or names of models of this library")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--wheels", type=Path, metavar="FOLDER")
    parser.add_argument("--peer", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker[0], options.files[0], options.batch, options.size, options.worker[1])
        return
    names = options.files or (onnx_files.fetch(options.wheels) if options.wheels else MODELS)
    print(f"batch {options.batch}, milliseconds; bar {BAR}")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = str(export(name, Path(folder), options.batch) if name in MODELS else name)
            try:
                best, difference = compare(path, options.batch, options.size, options.rounds, options.peer)
            except _Failed as failure:
                print(f"{Path(name).stem:32} {failure}", flush=True)
                continue
            ratio = best["tandem"] / best["onnxruntime"]
            print(f"{Path(name).stem:32} tandem {best['tandem'] * 1e3:8.2f}  onnxruntime {best['onnxruntime'] * 1e3:8.2f}"
                  f"  {ratio:5.2f}x{'' if ratio <= BAR else '  missed'}  difference {difference:.1e}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
