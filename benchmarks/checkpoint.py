"""Saving and loading a state of 1 GB, against safetensors' own writers and readers for PyTorch and NumPy.

checkpoint.py [--torch-python PATH] [--folder PATH] [--bytes N] [--rounds N]

Each case runs in a fresh process per library; rounds take turns; the least time counts, by the clock and of the CPU (on a busy
machine the second says more). Every figure says what it includes:

    save          the file is in the page cache, not yet on the disk (ours: durable=False)
    save, fsync   the file is on the disk (ours: the default; theirs with an fsync of the file after it)
    load          the file is in the page cache; every element is in the process's memory, and has been read once (by a sum)
    load, cold    the same, from the disk: the file was put out of the page cache before
    map           the file is in the page cache and mapped instead of read; every element has been read once

Ours computes checksums when it saves, and compares them when it loads (not when it maps); safetensors has none.
"""

import argparse
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
BAR = 1.1
CASES = {"save": BAR, "save, fsync": BAR, "load": BAR, "load, cold": BAR, "map": BAR}
COUNT = 64


def libraries(name: str) -> dict:
    """make(bytes), save(state, path, durable), load(path), map(path), touch(state) of a library."""

    def synced(write):
        def save(state, path, durable):
            write(state, path)
            if durable:
                fd = os.open(path, os.O_RDONLY)
                os.fsync(fd)
                os.close(fd)

        return save

    if name == "tandem":
        import tandem as td

        return {
            "make": lambda n: {f"layer{i}.weight": td.full((n // COUNT // 4,), float(i)) for i in range(COUNT)},
            "save": lambda state, path, durable: td.save(state, path, durable=durable),
            "load": lambda path: td.load(path),
            "map": lambda path: td.load(path, mmap=True),
            "touch": lambda state: sum(float(t.sum()) for t in state.values()),
        }
    if name == "torch":
        import torch
        from safetensors.torch import load_file, save_file

        torch.set_num_threads(2)
        return {
            "make": lambda n: {f"layer{i}.weight": torch.full((n // COUNT // 4,), float(i)) for i in range(COUNT)},
            "save": synced(save_file),
            # It maps; a copy is what "in the process's memory" takes.
            "load": lambda path: {k: v.clone() for k, v in load_file(path).items()},
            "map": load_file,
            "touch": lambda state: sum(float(t.sum()) for t in state.values()),
        }
    import numpy as np
    from safetensors.numpy import load_file, save_file

    return {
        "make": lambda n: {f"layer{i}.weight": np.full((n // COUNT // 4,), float(i), np.float32) for i in range(COUNT)},
        "save": synced(save_file),
        "load": load_file,
        "map": None,
        "touch": lambda state: sum(float(a.sum()) for a in state.values()),
    }


def measured(run) -> tuple:
    """(result, seconds by the clock, seconds of CPU)"""
    before, start = os.times(), time.perf_counter()
    result = run()
    elapsed, after = time.perf_counter() - start, os.times()
    return result, elapsed, after[0] + after[1] - before[0] - before[1]


def worker(name: str, case: str, path: str, count: int):
    """One case in a fresh process, so that no memory of an earlier one is at hand."""
    lib = libraries(name)
    small = path + ".small"
    lib["save"](lib["make"](COUNT * 4), small, False)  # imports and kernels
    lib["touch"](lib["load"](small))
    os.unlink(small)
    if case.startswith("save"):
        state, results = lib["make"](count), []
        for _ in range(3):
            if os.path.exists(path):
                os.unlink(path)
            os.sync()  # with much unwritten data about, the kernel makes writers wait
            results.append(measured(functools.partial(lib["save"], state, path, case == "save, fsync"))[1:])
        print(json.dumps([min(r[0] for r in results), min(r[1] for r in results)]))
        return
    if case == "load, cold":
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    read = lib["map" if case == "map" else "load"]
    total, elapsed, cpu = measured(lambda: lib["touch"](read(path)))
    assert total == sum(range(COUNT)) * (count // COUNT // 4)
    print(json.dumps([elapsed, cpu]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--folder", help="on the disk to measure; a temporary one unless given")
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", nargs=2)
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker, options.folder, options.bytes)
        return
    names = ["tandem", "numpy", "torch"]
    best: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for _ in range(options.rounds):
            for case in CASES:
                for name in list(names):
                    if (name, case) == ("numpy", "map"):
                        continue
                    python = options.torch_python if name == "torch" else sys.executable
                    path = os.path.join(folder, f"{name}.safetensors")
                    command = [
                        python,
                        str(HERE / "checkpoint.py"),
                        "--worker",
                        name,
                        case,
                        "--folder",
                        path,
                        "--bytes",
                        str(options.bytes),
                    ]
                    done = subprocess.run(command, capture_output=True, text=True)
                    if done.returncode:
                        print(f"{name}: {done.stderr.strip().splitlines()[-1]}")
                        names.remove(name)
                        continue
                    found = json.loads(done.stdout.splitlines()[-1])
                    best[name, case] = [min(pair) for pair in zip(found, best.get((name, case), found), strict=True)]
    peers = [n for n in names if n != "tandem"]
    print(
        f"{options.bytes / 1e9:.2f} GB       tandem s  (CPU)"
        + "".join(f"   safetensors.{n} s  (CPU)  ratio  (CPU)" for n in peers)
    )
    for case, bar in CASES.items():
        ours = best["tandem", case]
        row = f"{case:14} {ours[0]:8.3f} ({ours[1]:5.2f})"
        for name in peers:
            if (name, case) not in best:
                row += f"   {'-':>20}" + " " * 22
                continue
            theirs = best[name, case]
            ratio, cpu = ours[0] / theirs[0], ours[1] / theirs[1]
            row += f"   {theirs[0]:18.3f} ({theirs[1]:5.2f}) {ratio:5.2f}  ({cpu:4.2f}) {'ok' if ratio <= bar else 'MISS':4}"
        print(row)


if __name__ == "__main__":
    main()
