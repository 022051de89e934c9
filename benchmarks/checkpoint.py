"""Saving and loading a state of 1 GB, against safetensors' own writers and readers for PyTorch and NumPy.

checkpoint.py [--torch-python PATH] [--folder PATH] [--bytes N] [--rounds N]

Each library runs in a process of its own; rounds take turns; the least time counts. Every figure says what it includes:

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


def worker(name: str, folder: str, count: int):
    lib = libraries(name)
    path = os.path.join(folder, f"{name}.safetensors")
    state = lib["make"](count)
    lib["save"](lib["make"](COUNT * 4), path, False)  # imports and kernels
    lib["touch"](lib["load"](path))
    times = {}

    def measure(case, run):
        start = time.perf_counter()
        result = run()
        times[case] = min(times.get(case, 1e9), time.perf_counter() - start)
        return result

    for _ in range(3):
        for case, durable in (("save", False), ("save, fsync", True)):
            os.unlink(path)
            os.sync()  # with much unwritten data about, the kernel makes writers wait
            measure(case, functools.partial(lib["save"], state, path, durable))
    expected = lib["touch"](state)
    del state
    assert expected == measure("load", lambda: lib["touch"](lib["load"](path)))
    if lib["map"]:
        assert expected == measure("map", lambda: lib["touch"](lib["map"](path)))
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    assert expected == measure("load, cold", lambda: lib["touch"](lib["load"](path)))
    os.unlink(path)
    print(json.dumps(times))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--folder", help="on the disk to measure; a temporary one unless given")
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.folder, options.bytes)
        return
    best: dict[str, dict[str, float]] = {"tandem": {}, "numpy": {}, "torch": {}}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for _ in range(options.rounds):
            for name in list(best):
                python = options.torch_python if name == "torch" else sys.executable
                command = [
                    python,
                    str(HERE / "checkpoint.py"),
                    "--worker",
                    name,
                    "--folder",
                    folder,
                    "--bytes",
                    str(options.bytes),
                ]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    print(f"{name}: {done.stderr.strip().splitlines()[-1]}")
                    del best[name]
                    continue
                for case, seconds in json.loads(done.stdout.splitlines()[-1]).items():
                    best[name][case] = min(seconds, best[name].get(case, 1e9))
    print(
        f"{options.bytes / 1e9:.2f} GB       tandem s   "
        + "   ".join(f"safetensors.{n} s  ratio" for n in best if n != "tandem")
    )
    for case, bar in CASES.items():
        row = f"{case:14} {best['tandem'][case]:8.3f}"
        for name in best:
            if name == "tandem":
                continue
            if case not in best[name]:
                row += f"   {'-':>20}      "
                continue
            ratio = best["tandem"][case] / best[name][case]
            row += f"   {best[name][case]:20.3f}  {ratio:5.2f} {'ok' if ratio <= bar else 'MISS'}"
        print(row)


if __name__ == "__main__":
    main()
