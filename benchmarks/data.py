"""Data loaders beside PyTorch's: samples a second.

data.py [--case NAME] [--torch-python PATH] [--rounds N] [--seconds S]

Each library runs a case in a process of its own; rounds take turns; the best rate counts. A ratio is ours over theirs.

    tensors         TensorDataset of 100,000 rows of 32 floats and a label, batches of 64, shuffled, no workers
    tensors large   the same with batches of 1,024
    images          samples of 3 x 224 x 224 bytes turned into normalised floats, batches of 32, 2 worker processes
    images ready    samples that are slices of an array of 3 x 224 x 224 floats, batches of 32, 2 worker processes
    small           samples of 16 floats as tensors, made one by one, batches of 64, no workers
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
BARS = {"tensors": 1.5, "tensors large": 1.5, "images": 1.5, "images ready": 1.5, "small": 1.5}


def library(name: str):
    if name == "tandem":
        import tandem as td

        return td.data, td.from_numpy
    import torch
    import torch.utils.data

    return torch.utils.data, torch.from_numpy


class Images:
    """Bytes to normalised floats, as after decoding: by NumPy, the same code for both libraries."""

    def __init__(self, from_numpy):
        import numpy as np

        self.pixels = np.random.default_rng(0).integers(0, 256, (64, 3, 224, 224), np.uint8)
        self.from_numpy = from_numpy
        self.mean, self.scale = np.float32(127.5), np.float32(1 / 64)

    def __len__(self):
        return 512

    def __getitem__(self, i):
        import numpy as np

        image = self.pixels[i % 64].astype(np.float32)
        image -= self.mean
        image *= self.scale
        return self.from_numpy(image), i


class Ready:
    def __init__(self, from_numpy):
        import numpy as np

        self.pixels = from_numpy(np.random.default_rng(0).random((64, 3, 224, 224), np.float32))

    def __len__(self):
        return 512

    def __getitem__(self, i):
        return self.pixels[i % 64], i


class Small:
    def __init__(self, from_numpy):
        import numpy as np

        self.rows = from_numpy(np.random.default_rng(0).random((4096, 16), np.float32))

    def __len__(self):
        return 4096

    def __getitem__(self, i):
        return self.rows[i], i


def make(name: str, case: str):
    data, from_numpy = library(name)
    if case.startswith("tensors"):
        import numpy as np

        rows = from_numpy(np.random.default_rng(0).random((100_000, 32), np.float32))
        dataset = data.TensorDataset(rows, from_numpy(np.arange(100_000)))
        return data.DataLoader(dataset, batch_size=1024 if "large" in case else 64, shuffle=True)
    if case == "small":
        return data.DataLoader(Small(from_numpy), batch_size=64)
    dataset = (Images if case == "images" else Ready)(from_numpy)
    return data.DataLoader(dataset, batch_size=32, num_workers=2, persistent_workers=True)


def worker(name: str, case: str, seconds: float):
    loader = make(name, case)
    best, end = 0.0, None
    while end is None or time.perf_counter() < end:
        count, start = 0, time.perf_counter()
        for batch in loader:
            count += len(batch[0])
        if end is None:  # the first epoch starts processes and compiles
            end = time.perf_counter() + seconds
            continue
        best = max(best, count / (time.perf_counter() - start))
    print(json.dumps({"rate": best}), flush=True)
    os._exit(0)


def ask(python: str, name: str, case: str, seconds: float) -> dict:
    environment = {**os.environ, "TANDEM_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    command = [python, str(HERE / "data.py"), "--worker", name, "--case", case, "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr else f"status {done.returncode}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", action="append")
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--worker")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.case[0], options.seconds)
        return
    print(f"{'case':14} {'ours samples/s':>15} {'PyTorch':>10} {'ratio':>6} {'bar':>5}")
    for case in options.case or BARS:
        rates: dict[str, list[float]] = {"tandem": [], "torch": []}
        error = None
        for _ in range(options.rounds):
            for name in rates:
                found = ask(sys.executable if name == "tandem" else options.torch_python, name, case, options.seconds)
                error = error or (f"{name}: {found['error']}" if "error" in found else None)
                rates[name].append(found.get("rate", 0.0))
        if error:
            print(f"{case:14} {error}")
            continue
        ours, theirs = max(rates["tandem"]), max(rates["torch"])
        bar = BARS[case]
        verdict = f"{bar:5.2f} {'ok' if ours / theirs >= bar else 'MISS'}"
        print(f"{case:14} {ours:15.0f} {theirs:10.0f} {ours / theirs:6.2f} {verdict}", flush=True)


if __name__ == "__main__":
    main()
