"""How long the first call of a function takes, with an empty cache of kernels.

cold.py              some seventy calls, each the first of a process of its own: with the package's kernels and without
cold.py --all        every public function once, in one process, after LLVM is there: CPU time, the slowest first
cold.py --examples   the examples of all public functions, in one process: how many compile nothing, of how many

The time is that of one call by the wall clock, and what the thread used of it. The bar is 30 ms.
"""

import argparse
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BAR = 30.0  # ms

SETUP = """
import time, tandem as td
from tandem.nn import functional as F
v = td.tensor([0.3, 0.7, 0.2, 0.9, 0.5]); m = td.tensor([[0.3, 0.7], [0.1, 0.9], [0.5, 0.4]])
q = td.tensor([[2.0, 0.5], [0.5, 1.0]])
i = td.tensor([1, 2, 3, 1]); z = td.tensor([0.3 + 0.2j, 1 - 0.5j]); zq = td.tensor([[1 + 2j, 3j], [0.5 + 0j, 1 - 1j]])
image = td.tensor([[[[0.5, 1.5, 2.5, 1.0], [1.0, 2.0, 3.0, 0.0], [0.1, 0.2, 0.3, 0.4], [1.1, 1.2, 1.3, 1.4]]]])
w = td.tensor([[0.3, 0.7], [0.1, 0.9]], requires_grad=True)
started, used = time.perf_counter(), time.thread_time()
"""

CALLS = """
v + v | v + 1 | 2 * v | m @ q | m + m[0] | v > 0.5 | v[i] | v[v > 0.4] | repr(v) | v.sum() | m.mean(0) | m.max(-1)
i + i | i % 2 | z * z | v.to(td.float64) | td.exp(v) | td.sin(v) | td.where(v > 0.5, v, 0) | td.exp(z) | td.pow(z, z)
td.acos(z) | td.sqrt(z) | td.tanh(z) | td.softmax(m, -1) | td.logsumexp(m, 0) | td.std(m) | td.sort(v) | td.topk(v, 2)
td.cumsum(v, 0) | td.unique(i) | td.unique(z) | td.median(v) | td.quantile(v, 0.3) | td.histc(v)
td.histogramdd(m, [3, 3]) | td.bincount(i) | td.searchsorted(v, v) | td.randn(3) | td.rand(2, 3) | td.randperm(5)
td.randint(0, 9, (3,)) | td.multinomial(v, 2) | td.einsum("ij,jk->ik", m, q) | td.kron(q, q) | td.cdist(m, m)
td.linalg.inv(q) | td.linalg.svd(q) | td.linalg.eigh(q) | td.linalg.det(zq) | td.linalg.matrix_exp(q)
td.pca_lowrank(m) | td.fft.fft(v) | td.fft.rfft2(m) | td.fft.fftfreq(5) | td.special.zeta(v + 2, v)
td.special.bessel_j0(v) | td.special.gammainc(v, v) | td.lgamma(v)
F.interpolate(image, scale_factor=2, mode="bilinear") | F.interpolate(image, scale_factor=2, mode="bicubic")
F.unfold(image, 2) | F.instance_norm(image) | F.layer_norm(m, (2,)) | F.conv2d(image, image[..., :3, :3])
F.max_pool2d(image, 2) | F.gelu(v) | F.pad(image, (1, 1)) | F.cross_entropy(m, td.tensor([0, 1, 1]))
F.scaled_dot_product_attention(image, image, image) | (w * w).sum().backward() | td.exp(w).sum().backward()
td.softmax(w, -1).sum().backward() | F.mse_loss(w, q).backward() | td.linalg.inv(w).sum().backward()
"""


def calls() -> list[str]:
    return [c.strip() for line in CALLS.strip().splitlines() for c in line.split(" | ")]


def first_call(code: str, **switches) -> tuple[float, float, bool]:
    """(ms by the wall clock, ms of the thread, whether the compiler was loaded) of one call in a process of its own."""
    program = SETUP + code + "\nprint((time.perf_counter() - started) * 1e3, (time.thread_time() - used) * 1e3, "
    program += "int('libllvmlite' in open('/proc/self/maps').read()))"
    with tempfile.TemporaryDirectory() as cache:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"TANDEM_CACHE_DIR": os.path.join(cache, "none yet")} | switches
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{code}: {done.stderr}")
    wall, thread, compiled = done.stdout.split()
    return float(wall), float(thread), compiled == "1"


def each(repeat: int, pattern: str):
    rows = {"with": [], "without": []}
    for code in [c for c in calls() if pattern in c]:
        line = f"{code:55}"
        for kind, switches in (("with", {}), ("without", {"TANDEM_PREBUILT": "0"})):
            runs = [first_call(code, **switches) for _ in range(repeat)]
            wall, thread = min(r[0] for r in runs), min(r[1] for r in runs)
            rows[kind].append((wall, thread, code))
            line += f"  {kind} {wall:6.1f} ms ({thread:6.1f}{', compiled' if runs[0][2] else ''})"
        print(line, flush=True)
    for kind, row in rows.items():
        walls = sorted(r[0] for r in row)
        slow = [f"{code} {wall:.0f}" for wall, _, code in row if wall > BAR]
        print(f"{kind} the package's kernels: median {walls[len(walls) // 2]:.1f} ms, largest {walls[-1]:.1f}, "
              f"{len(slow)} of {len(row)} above {BAR:.0f}: {'; '.join(slow)}")  # fmt: skip


def _counting() -> list[str]:
    """A list that gets the name of every kernel that is compiled from now on."""
    from tandem.codegen import compile

    compiled = []
    before = compile.compile_object
    compile.compile_object = lambda kernel: (compiled.append(kernel.name), before(kernel))[1]
    return compiled


def every():
    """One call of every public function, and one with complex numbers where it takes them."""
    os.environ["TANDEM_CACHE_DIR"] = os.path.join(tempfile.mkdtemp(), "none yet")
    import tandem as td

    sys.path.insert(0, str(ROOT / "tools"))
    from prebuild_calls import spaces

    td.ones(3) * td.ones(3) - 3.5  # whatever is imported at the first call
    with td.switches(PREBUILT=0, CACHE=0):
        td.ones(3) * td.ones(3) - td.ones(3)  # and LLVM
    compiled = _counting()
    new = lambda *shape: td.rand(shape) * 0.8 + 0.1
    v, m, q, index, mask = new(7), new(4, 5), new(4, 4), td.tensor([1, 2, 3, 1]), td.tensor([True, False, True, True])
    z, zq = td.tensor([0.3 + 0.2j, 1 - 0.5j]), td.tensor([[1 + 2j, 3j], [0.5 + 0j, 1 - 1j]])
    tries = [
        (v,), (m,), (q,), (v, v), (m, m), (index,), (index, index), (mask,), (mask, mask), (m, 0), (m, 1), (v, 2), (v, 0, index),
        (m, 0, td.tensor([[0, 1, 1, 0, 1]])), (q, q), (q, v[:4]), (v, v, v), (m, m, m), (mask, new(4), new(4)), (new(2, 3, 8, 8),),
        (new(2, 3, 8),), (new(2, 3, 8, 8), 2), (new(1, 1, 4, 4), new(1, 1, 3, 3)), ([v, v],), ([m, m],), (3,), (3, 3), ((2, 3),),
        (m, (1, 0)), (v, index), (m, [1, 1]), (q, 2),
    ]  # fmt: skip
    complex_tries = [(z,), (z, z), (zq,), (zq, zq)]
    rows, refused = [], []
    for prefix, functions in spaces().items():
        for name, function in functions.items():
            for kind, arguments in (("", tries), (" complex", complex_tries if prefix != "F." else [])):
                for args in arguments:
                    before, started = len(compiled), time.thread_time()
                    try:
                        function(*args)
                    except Exception:
                        continue
                    rows.append(((time.thread_time() - started) * 1e3, len(compiled) - before, prefix + name + kind))
                    break
                else:
                    refused += [prefix + name] if not kind else []
    rows.sort(reverse=True)
    slow, compiling = sum(t > BAR for t, *_ in rows), sum(n > 0 for _, n, _ in rows)
    print(
        f"{len(rows)} calls: median {rows[len(rows) // 2][0]:.1f} ms, {slow} above {BAR:.0f} ms, {compiling} compiled something"
    )
    print(f"{len(refused)} functions took none of the arguments: {' '.join(refused)}")
    for ms, count, name in rows[:40]:
        print(f"{ms:7.1f} ms  {count:2} kernels compiled  {name}")


def examples():
    import tandem as td

    sys.path.insert(0, str(ROOT / "tools"))
    from prebuild_calls import documented, run_example

    compiled = _counting()
    served = total = 0
    for name, text in documented().items():
        if name.startswith(("nn.", "optim.", "distributions.")):
            continue
        del compiled[:]
        try:
            run_example(text, td.float32)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}")
        total += 1
        served += not compiled
        if compiled:
            print(f"{name}: {len(compiled)} kernels compiled")
    print(served, total)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", dest="what", action="store_const", const=every)
    parser.add_argument("--examples", dest="what", action="store_const", const=examples)
    parser.add_argument("--repeat", type=int, default=3, help="processes per call, of which the quickest counts")
    parser.add_argument("--only", default="", help="calls with this text in them")
    options = parser.parse_args()
    (options.what or functools.partial(each, options.repeat, options.only))()


if __name__ == "__main__":
    main()
