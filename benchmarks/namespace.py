"""The namespace against NumPy, SciPy and PyTorch: how long each function takes, as a ratio, at two sizes.

    python benchmarks/namespace.py
    python benchmarks/namespace.py --torch-python path/to/python --only sort,unique

Each library runs in a process of its own, with two threads; processes take turns, and the best of the turns counts, so that
other work on the machine falls out. Prints the ratio of every function, the median, and what is slower than three times.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

SIZES = (1_000, 1_000_000)
BAR, LIMIT = 1.0, 3.0

# Tandem's expression | NumPy's, where it differs | PyTorch's, where it differs from Tandem's ("-": it has none).
# m is the library, s SciPy's special functions, u a float32 vector in (0, 1), x and y normal ones, p positive, a and b matrices,
# i and j int32, k int64 positions, q sorted, c a mask, w a small square matrix, z complex.
CASES = """
m.abs(x)
m.acos(u) | m.arccos(u)
m.acosh(p + 1) | m.arccosh(p + 1)
m.asin(u) | m.arcsin(u)
m.asinh(x) | m.arcsinh(x)
m.atan(x) | m.arctan(x)
m.atanh(u) | m.arctanh(u)
m.ceil(x)
m.cos(x)
m.cosh(x)
m.exp(x)
m.exp2(x)
m.expm1(x)
m.floor(x)
m.isfinite(x)
m.isinf(x)
m.isnan(x)
m.log(p)
m.log10(p)
m.log1p(p)
m.log2(p)
m.logical_not(c)
m.negative(x)
m.positive(x)
m.reciprocal(p)
m.round(x)
m.sign(x)
m.signbit(x)
m.sin(x)
m.sinh(x)
m.sqrt(p)
m.square(x)
m.tan(x)
m.tanh(x)
m.trunc(x)
m.cbrt(x) | | -
m.deg2rad(x)
m.sinc(x)
m.bitwise_invert(i) | | m.bitwise_not(i)
m.erf(x) | s.erf(x)
m.erfc(x) | s.erfc(x)
m.erfinv(u) | s.erfinv(u)
m.sigmoid(x) | s.expit(x)
m.digamma(p) | s.digamma(p)
m.lgamma(p) | s.gammaln(p)
m.i0(x) | s.i0(x)
m.special.i1(x) | s.i1(x)
m.special.ndtr(x) | s.ndtr(x)
m.special.ndtri(u) | s.ndtri(u)
m.special.entr(p) | s.entr(p)
m.logit(u) | s.logit(u)
m.softmax(x, -1) | s.softmax(x)
m.log_softmax(x, -1) | s.log_softmax(x)
m.logsumexp(x, 0) | s.logsumexp(x)
m.add(x, y)
m.subtract(x, y)
m.multiply(x, y)
m.divide(x, y)
m.pow(p, y) | m.power(p, y)
m.floor_divide(x, y)
m.remainder(x, y)
m.fmod(x, y)
m.maximum(x, y)
m.minimum(x, y)
m.fmax(x, y)
m.less(x, y)
m.less_equal(x, y)
m.greater(x, y)
m.greater_equal(x, y)
m.equal(x, y) | | m.eq(x, y)
m.not_equal(x, y)
m.atan2(x, y) | m.arctan2(x, y)
m.copysign(x, y)
m.hypot(x, y)
m.logaddexp(x, y)
m.nextafter(x, y)
m.xlogy(p, p) | s.xlogy(p, p)
m.heaviside(x, y)
m.bitwise_and(i, j)
m.bitwise_or(i, j)
m.bitwise_xor(i, j)
m.bitwise_left_shift(i, 2)
m.bitwise_right_shift(i, 2)
m.logical_and(c, c)
m.logical_or(c, c)
m.logical_xor(c, c)
m.floor_divide(i, j)
m.remainder(i, j)
m.gcd(i, j)
m.add(i, j)
m.multiply(x, 2.0)
m.sum(x)
m.sum(a, 0)
m.sum(a, 1)
m.sum(i)
m.prod(u)
m.mean(x)
m.mean(a, 0)
m.std(x)
m.var(a, 1)
m.max(x)
m.min(x)
m.amax(a, 0)
m.argmax(x)
m.argmin(a, 1)
m.all(c)
m.any(c)
m.count_nonzero(x)
m.cumulative_sum(x) | m.cumsum(x) | m.cumsum(x, 0)
m.cumulative_prod(u) | m.cumprod(u) | m.cumprod(u, 0)
m.cumsum(a, 0)
m.median(x)
m.nansum(x)
m.nanmean(x)
m.quantile(x, 0.3)
m.diff(x)
m.sort(x)
m.sort(a, -1)
m.sort(i)
m.argsort(x)
m.searchsorted(q, x)
m.unique_values(i) | m.unique(i) | m.unique(i)
m.unique_values(x) | m.unique(x) | m.unique(x)
m.unique_counts(i) | m.unique(i, return_counts=True) | m.unique(i, return_counts=True)
m.unique_inverse(i) | m.unique(i, return_inverse=True) | m.unique(i, return_inverse=True)
m.isin(i, i[:50])
m.nonzero(c) | | m.nonzero(c, as_tuple=True)
m.where(c, x, y)
m.clip(x, -0.5, 0.5)
x[c]
x[k]
m.take(x, k)
m.take(a, k[:20], 0) | | m.index_select(a, 0, k[:20])
m.take_along_axis(x, k, 0) | | m.gather(x, 0, k)
m.concat([x, y])
m.stack([x, y])
m.repeat(x, 2) | | m.repeat_interleave(x, 2)
m.tile(x, (2,))
m.roll(x, 3)
m.flip(x) + 0 | | m.flip(x, (0,))
m.tril(a)
m.triu(a)
m.trace(a)
m.diagonal(a)
m.eye(len(a))
m.arange(len(x))
m.linspace(0, 1, len(x))
m.zeros((len(x),))
m.ones((len(x),))
m.full((len(x),), 2.5)
m.zeros_like(x)
m.asarray(x, copy=True) | m.array(x) | x.clone()
m.meshgrid(a[0], a[0])[0] + 0
m.reshape(a, (-1,))
m.permute_dims(a, (1, 0)) | m.transpose(a) | m.permute(a, (1, 0))
a.T + b
m.expand_dims(x, 0) | | m.unsqueeze(x, 0)
m.squeeze(x[None], 0)
m.broadcast_to(x, (2, len(x)))
m.moveaxis(a, 0, 1)
m.unstack(a[:10])
m.astype(x, m.int32) | x.astype(m.int32) | x.to(m.int32)
m.astype(i, m.float32) | i.astype(m.float32) | i.to(m.float32)
m.pad(a, (1, 1, 1, 1)) | m.pad(a, 1) | m.nn.functional.pad(a, (1, 1, 1, 1))
m.bincount(k)
m.matmul(a, b)
m.vecdot(a, b) | | m.linalg.vecdot(a, b)
m.tensordot(a, b, 1)
m.outer(x[:300], y[:300])
m.einsum("ij,ij->i", a, b)
m.kron(w, w)
m.linalg.det(w)
m.linalg.inv(w)
m.linalg.solve(w, w)
m.linalg.cholesky(w @ w.T + m.eye(len(w)))
m.linalg.qr(w)
m.linalg.svd(w)
m.linalg.eigh(w + w.T)
m.linalg.norm(x)
m.fft.fft(z)
m.fft.rfft(x)
m.fft.ifft(z)
m.fft.fft2(a)
m.abs(z)
m.exp(z)
m.multiply(z, z)
m.conj(z)
m.real(z) + 0
"""


def cases():
    """(expressions by library) for each line."""
    for line in CASES.strip().splitlines():
        parts = [part.strip() for part in line.split("|")] + ["", ""]
        yield {
            "tandem": parts[0],
            "numpy": parts[1] or parts[0],
            "torch": "" if parts[2] == "-" else parts[2] or parts[0],
        }


def arrays(size: int) -> dict:
    import numpy as np

    rng = np.random.default_rng(0)
    side = int(size**0.5)
    x, y = rng.standard_normal((2, size)).astype("float32")
    small = 10 if size < 100_000 else 100
    return {
        "x": x, "y": y, "u": rng.uniform(0.01, 0.99, size).astype("float32"), "p": (np.abs(x) + 0.01).astype("float32"),
        "a": x[: side * side].reshape(side, side).copy(), "b": y[: side * side].reshape(side, side).copy(),
        "i": rng.integers(1, 1000, size).astype("int32"), "j": rng.integers(1, 1000, size).astype("int32"),
        "k": rng.integers(0, side, size), "q": np.sort(x), "c": x > 0,
        "w": rng.standard_normal((small, small)).astype("float32"), "z": (x + 1j * y).astype("complex64"),
    }  # fmt: skip


def work(library: str, size: int, expressions: list[str], seconds: float):
    """In a process of its own: prints {expression: seconds a call, or null where it fails} as JSON."""
    given = arrays(size)
    names: dict = {}
    if library == "numpy":
        import numpy as m
        import scipy.special

        names = {"s": scipy.special}
    elif library == "torch":
        import torch as m

        given = {name: m.from_numpy(value) for name, value in given.items()}
    else:
        import tandem as m

        given = {name: m.tensor(value) for name, value in given.items()}
    names |= given | {"m": m}
    found = {}
    for expression in expressions:
        run = eval(f"lambda: {expression}", names)
        try:
            found[expression] = best_of(run, seconds)
        except Exception as error:
            found[expression] = None
            print(f"{library}: {expression}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
    print(json.dumps(found))


def best_of(run, seconds: float) -> float:
    """Seconds a call takes: the best of many short batches, some of which the machine's other work leaves alone."""
    for _ in range(3):
        run()
    start = time.perf_counter()
    run()
    count = max(1, int(2e-4 / max(time.perf_counter() - start, 1e-7)))
    best, batches, end = float("inf"), 0, time.perf_counter() + seconds
    while batches < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(count):
            run()
        best = min(best, (time.perf_counter() - start) / count)
        batches += 1
    return best


def measure(libraries: dict[str, str], size: int, chosen: list[dict], rounds: int, seconds: float) -> dict:
    """{library: {expression: best seconds}}, the processes taking turns."""
    best: dict = {library: {} for library in libraries}
    for _ in range(rounds):
        for library, python in libraries.items():
            expressions = [case[library] for case in chosen if case[library]]
            command = [python, __file__, "--work", library, "--size", str(size), "--seconds", str(seconds)]
            threads = {f"{prefix}_NUM_THREADS": "2" for prefix in ("OMP", "MKL", "OPENBLAS", "TANDEM")}
            environment = os.environ | threads
            done = subprocess.run(
                command, input=json.dumps(expressions), capture_output=True, text=True, env=environment
            )
            if done.returncode:
                raise SystemExit(f"{library} failed:\n{done.stderr[-2000:]}")
            sys.stderr.write(done.stderr)
            for expression, taken in json.loads(done.stdout.splitlines()[-1]).items():
                if taken is not None:
                    best[library][expression] = min(taken, best[library].get(expression, float("inf")))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--torch-python", help="an interpreter with PyTorch; without it, only NumPy and SciPy are compared with"
    )
    parser.add_argument(
        "--only", default="", help="words, with commas between; only expressions that contain one of them"
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.03, help="time for one function at one size in one round")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        if arguments.work == "tandem":
            sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
        work(arguments.work, arguments.size, json.loads(sys.stdin.read()), arguments.seconds)
        return
    libraries = {"tandem": sys.executable, "numpy": sys.executable}
    if arguments.torch_python:
        libraries["torch"] = arguments.torch_python
    words = [w for w in arguments.only.split(",") if w]
    chosen = [c for c in cases() if not words or any(w in c["tandem"] for w in words)]
    ratios: dict[str, list] = {"numpy": [], "torch": []}
    slow = []
    print(f"{'microseconds':<44}" + "".join(f"{f'{n} at 10^{len(str(s)) - 1}':>16}" for s in SIZES for n in libraries))
    results = {s: measure(libraries, s, chosen, arguments.rounds, arguments.seconds) for s in SIZES}
    for case in chosen:
        cells = []
        for size, best in results.items():
            ours = best["tandem"].get(case["tandem"])
            for library in libraries:
                taken = best[library].get(case[library])
                text = "-" if taken is None else f"{taken * 1e6:.2f}"
                if library != "tandem" and taken and ours:
                    ratios[library].append(ours / taken)
                    text += f" ({ours / taken:.2f})"
                    if ours / taken > LIMIT:
                        slow.append((ours / taken, case["tandem"], size, library, ours, taken))
                cells.append(f"{text:>16}")
        print(f"{case['tandem']:<44}" + "".join(cells))
    print()
    for library, found in ratios.items():
        if found:
            print(f"median ratio to {library}: {statistics.median(found):.3f} over {len(found)} (bar {BAR})")
    print(f"slower than {LIMIT} times: {len(slow)}")
    for ratio, expression, size, library, ours, taken in sorted(slow, reverse=True):
        print(f"  {ratio:6.1f}  {expression:<40} {size:>8}  {ours * 1e6:.1f} against {taken * 1e6:.1f} us of {library}")


if __name__ == "__main__":
    main()
