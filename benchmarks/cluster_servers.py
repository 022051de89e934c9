"""Parameter servers: the OSDI'16 paper's figures 6, 8 and 9 on one host, and the placer's predictions beside runs.

    python benchmarks/cluster_servers.py [--figures 6,8,9,place] [--workers 1,4,16,64] [--seconds 3] [--save FILE]
        [--pictures FOLDER]

6: a step in which workers pull, compute nothing, and push, over 16 servers, which are tasks of one process. Workers are virtual:
   all of one other process, which pulls once for them and pushes their gradients stacked. scalar: 4 bytes a server; dense: 32 and
   128 MB in all; sparse: 32 rows, of tables of 64 MB and of 4 GB. Bars: scalar grows at most 5 times from 1 to 64 workers; sparse
   is the same within 10 % for both tables; dense in proportion to bytes.
8: 8 + b real workers (threads) that sleep for sampled times instead of computing; the first 8 gradients count. Printed are the
   median step and t(0)/t(b) * 8/(8+b). Then one worker sleeps for good: with one backup that costs at most 10 %.
9: an LSTM language model (512-512, vocabulary 40,000) whose output table is on servers: full softmax against sampled softmax of
   512, in bytes moved and operations of the output layer, and words a second with 1, 2 and 4 servers, which are processes.
--save: a file of all figures, of which `tandem view` makes a page; docs/figures.json is one.
place: two towers placed over two processes by td.distributed.place with measured times, and what a run takes.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import os
import statistics
import subprocess
import sys
import threading
import time

import numpy as np

import tandem as td
from tandem.distributed import Cluster, ParameterServer, ShardedEmbedding
from tandem.distributed.simulator import simulate_workers
from tandem.distributed.simulator.workers import straggling
from tandem.pages.charts import chart

figures: list[dict] = []  # as tandem/pages/charts.py describes them


def draw(title: str, x: str, y: str, series: dict[str, dict[float, float]]):
    figures.append({"title": title, "x": x, "y": y, "series": {n: list(p.items()) for n, p in series.items()}})


class Remote:
    """Servers that are threads of another process."""

    def __init__(self, count: int):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        found = json.loads(self.process.stdout.readline())
        self.cluster = Cluster.connect(found["addresses"], bytes.fromhex(found["key"]))

    def __enter__(self) -> Cluster:
        return self.cluster

    def __exit__(self, *exc):
        self.cluster.close()
        self.process.stdin.close()
        self.process.wait(20)


def serve(count: int):
    with Cluster({"ps": count}, engine="threads") as cluster:
        print(json.dumps({"addresses": cluster.addresses, "key": cluster.key.hex()}), flush=True)
        sys.stdin.read()


def times_of(call, seconds: float) -> list[float]:
    """Times of calls, for so many seconds."""
    call()
    call()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return times


def median_time(call, seconds: float) -> float:
    return statistics.median(times_of(call, seconds))


class Scalars(td.nn.Module):
    def __init__(self, count: int, size: int):
        super().__init__()
        self.values = td.nn.ParameterList([td.nn.Parameter(td.zeros(size)) for _ in range(count)])


def dense_step(cluster, workers: int, size: int, seconds: float) -> float:
    """Seconds of a null step: every server has `size` numbers."""
    model = Scalars(16, size)
    server = ParameterServer(
        model, td.optim.SGD(model.parameters(), lr=0.1), cluster=cluster, worker=range(workers), workers=workers,
        name=f"dense {workers} {size}",
    )  # fmt: skip
    gradients = [[td.ones(size) for _ in range(16)] for _ in range(workers)]

    def step():
        for k in range(workers):
            for p, g in zip(server.parameters, gradients[k], strict=True):
                p.grad = g
            if workers > 1:
                server.collect(k)
        server.step()

    found = median_time(step, seconds)
    server.close()
    return found


def sparse_step(cluster, rows: int, width: int, seconds: float) -> float:
    """Seconds of a step that looks 32 rows up and pushes their gradients."""
    table = ShardedEmbedding(rows, width, td.optim.SGD, on_demand=False, lr=0.1)
    server = ParameterServer(table, mode="async", cluster=cluster, name=f"sparse {rows}")
    rng = np.random.default_rng(0)

    def step():
        table(td.tensor(rng.integers(0, rows, 32))).sum().backward()
        server.step()

    found = median_time(step, seconds)
    server.close()
    return found


def in_turn(steps: dict, seconds: float, rounds: int = 4) -> dict:
    """The least of some medians of each step, in rounds of all: what disturbs the machine for a while does not decide."""
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(rounds):
        for name, step in steps.items():
            best[name] = min(best[name], step(seconds / rounds))
    return best


def figure_6(workers: list[int], seconds: float):
    print("figure 6: null steps over 16 servers, the least of medians, in turn")
    with Remote(16) as cluster:
        scalar = in_turn({w: functools.partial(dense_step, cluster, w, 1) for w in workers}, seconds)
        for w, t in scalar.items():
            print(f"  scalar, {w:3} workers: {t * 1e3:8.2f} ms   {t / scalar[workers[0]]:.2f} x")
        draw("6: null step, scalar", "workers", "ms", {"16 servers": {w: t * 1e3 for w, t in scalar.items()}})
        sizes = {mb: functools.partial(sparse_step, cluster, mb * 2**20 // 64, 16) for mb in (64, 4096)}
        small, large = in_turn(sizes, 2 * seconds).values()
        print(f"  sparse, 32 rows: {small * 1e3:.2f} ms of 64 MB, {large * 1e3:.2f} ms of 4 GB: {large / small:.3f}")
        for w in (1, 4):
            sizes = {mb: functools.partial(dense_step, cluster, w, mb * 2**20 // 64) for mb in (32, 128)}
            small, large = (t * 1e3 for t in in_turn(sizes, 2 * seconds, rounds=2).values())
            print(f"  dense, {w} workers: 32 MB {small:.1f} ms, 128 MB {large:.1f} ms: {large / small:.2f} for 4 x")


def backup_run(backups: int, steps: int, needed: int = 8, asleep: int = 0, median: float = 0.03) -> float:
    """The median step of `needed` + b workers; `asleep` of them never push."""
    total, sample = needed + backups, straggling(median, 0.1, 0.12, 4.0)
    with Cluster({"ps": 1}, engine="threads") as cluster:
        times, over = [], threading.Event()

        def work(k):
            rng = np.random.default_rng(k)
            model = Scalars(1, 16)
            mode = {"mode": "backup", "needed": needed} if backups else {"mode": "sync"}
            server = ParameterServer(
                model,
                td.optim.SGD(model.parameters(), lr=0.1),
                cluster=cluster,
                worker=k,
                workers=total,
                timeout=60.0,
                **mode,
            )
            if k >= total - asleep:
                over.wait()
                return
            began = time.perf_counter()
            while server.version < steps:
                time.sleep(sample(rng, k))
                for p in server.parameters:
                    p.grad = td.ones(16)
                before = server.version
                server.step()
                if k == 0 and server.version > before:
                    now = time.perf_counter()
                    times.extend([(now - began) / (server.version - before)] * (server.version - before))
                    began = now
            over.set()

        threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(total)]
        for t in threads:
            t.start()
        over.wait()
        for t in threads:
            t.join(5)
    return statistics.median(times[2:])


def figure_8(steps: int = 60):
    print("figure 8: 8 + b workers, the first 8 gradients of a step count; simulated 50 + b beside")
    real = {b: backup_run(b, steps) for b in range(5)}
    # Inputs, and which of them are fitted: docs/simulator.md.
    often, link = straggling(1.4, 0.01, 0.0785, 1.48), {"transfer": 0.0051, "alone": 0.087, "sharing": "fair"}
    simulated = {b: simulate_workers(50 + b, often, needed=50, steps=300, seed=1, **link).median for b in range(8)}
    for b, t in real.items():
        print(f"  8 + {b}: {t * 1e3:7.1f} ms, normalised {real[0] / t * 8 / (8 + b):.3f}")
    for b, t in simulated.items():
        print(f"  50 + {b} (simulated): {t:7.3f} s, normalised {simulated[0] / t * 50 / (50 + b):.3f}")
    normal = lambda found, n: {b: found[0] / t * n / (n + b) for b, t in found.items()}
    series = {"8 + b, real": normal(real, 8), "50 + b, simulated": normal(simulated, 50)}
    draw("8: backup workers, normalised speed", "backups", "t(0) / t(b) x n / (n + b)", series)
    steady = backup_run(0, steps, median=0.03)
    asleep = backup_run(1, steps, asleep=1, median=0.03)
    print(f"  one sleeping worker of 8 + 1: {asleep / steady:.3f} of 8 awake")


class Language(td.nn.Module):
    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        td.manual_seed(0)
        self.words = ShardedEmbedding(vocabulary, width, td.optim.Adagrad, lr=0.1)
        self.lstm = td.nn.LSTM(width, width, batch_first=True)
        self.out = ShardedEmbedding(vocabulary, width, td.optim.Adagrad, lr=0.1, seed=1)


def figure_9(
    seconds: float, vocabulary: int = 40_000, width: int = 512, sampled: int = 512, batch: int = 16, length: int = 8
):
    print("figure 9: output layer of a language model, 512-512, vocabulary 40,000")
    words = batch * length
    rng = np.random.default_rng(0)
    speeds = {}
    for servers in (1, 2, 4):
        with Cluster({"ps": servers}, engine="processes", threads=1) as cluster:
            model = Language(vocabulary, width)
            server = ParameterServer(
                model, td.optim.Adagrad(model.lstm.parameters(), lr=0.1), mode="async", cluster=cluster, timeout=60.0
            )
            before = model.out.moved["bytes"]
            steps = 0

            def step(model=model, server=server):
                nonlocal steps
                ids = td.tensor(np.minimum(rng.zipf(1.3, (batch, length)), vocabulary - 1))
                hidden, _ = model.lstm(model.words(ids))
                model.out.sampled_softmax(hidden.reshape(words, width), ids.reshape(-1), sampled).mean().backward()
                server.step()
                steps += 1

            took = median_time(step, seconds)
            moved = (model.out.moved["bytes"] - before) / steps
            whole = 2 * vocabulary * (4 * width + 8)
            speeds[servers] = words / took
            rows, less = moved / 1e6, whole / moved
            print(
                f"  {servers} servers: {words / took:8.0f} words/s, {rows:.2f} MB of rows a step, {less:.1f} x less than all rows"
            )
    draw("9: sampled softmax of 512", "servers", "words a second", {"512-512, 40,000 words": speeds})
    products = vocabulary / sampled
    print(f"  operations of the output layer: {vocabulary} against {sampled} products a word: {products:.1f} x less")
    whole, sample = vocabulary * width * 4 / 1e6, sampled * width * 4 / 1e6
    print(f"  rows of the sample alone: {whole:.1f} MB against {sample:.2f} MB: {products:.1f} x less")


def towers(width: int, depth: int):
    """A graph of two towers that meet in a loss, with no devices."""
    td.manual_seed(0)
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (256, width), name="x")
        ends = []
        for side in "ab":
            y = x
            for k in range(depth):
                w = td.Variable(td.randn(width, width) / width**0.5, name=f"{side}{k}")
                y = td.tanh(y @ w)
            ends.append(y)
        result = (ends[0] * ends[1]).sum()
        init = td.global_variables_initializer()
    return graph, x, result, init


def figure_place(seconds: float, width: int = 512, depth: int = 6):
    """Predictions of the placer beside runs over two processes."""
    times, sessions = {}, {}
    clusters = {way: Cluster({"worker": 2}, engine="processes", threads=1) for way in ("one", "placed")}
    for way, cluster in clusters.items():
        graph, x, result, init = towers(width, depth)
        costs = td.distributed.measure_cluster(cluster)
        plan = td.distributed.place(graph, cluster.tasks, fetches=[result], measure=True, costs=costs)
        if way == "placed":
            plan.apply()
        session = td.Session(graph, target=cluster)
        session.run(init)
        sessions[way] = functools.partial(session.run, result, {x: td.ones(256, width)})
    for _ in range(4):  # in turn; the least counts
        for way, run in sessions.items():
            times[way] = min(times.get(way, 1e9), *times_of(run, seconds / 4))
    for cluster in clusters.values():
        cluster.close()
    one, placed = times["one"], times["placed"]
    print("placement of two towers over two processes")
    link = costs.link(0, 1)
    print(
        f"  a process has {costs.together:.2f} of its speed while both compute; {link.bandwidth / 1e9:.2f} GB/s between them"
    )
    print("  " + plan.explain().replace("\n", "\n  "))
    print(f"  measured: one process {one * 1e3:.2f} ms, placed {placed * 1e3:.2f} ms: {placed / one:.3f}")
    print(
        f"  predicted: one {plan.alone * 1e3:.2f} ms, placed {plan.seconds * 1e3:.2f} ms: {plan.seconds / plan.alone:.3f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", default="6,8,9,place")
    parser.add_argument("--workers", default="1,4,16,64")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--save", help="where to write the figures, for `tandem view`")
    parser.add_argument("--pictures", help="where to write the plots, each a file, as docs/figures.md has them")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    td.set_num_threads(1)
    printed = Tee(sys.stdout)
    with contextlib.redirect_stdout(printed):
        run(options)
    if options.pictures:
        for figure in figures:
            name = "figure_" + figure["title"].partition(":")[0]
            with open(os.path.join(options.pictures, f"{name}.svg"), "w") as file:
                file.write(chart(**figure))
    if options.save:
        with open(options.save, "w") as file:
            json.dump({"title": "Parameter servers", "figures": figures, "text": printed.text()}, file, indent=1)


class Tee(io.StringIO):
    """Text that is printed, and kept."""

    def __init__(self, target):
        super().__init__()
        self.target, self.text = target, self.getvalue

    def write(self, text: str) -> int:
        self.target.write(text)
        self.target.flush()
        return super().write(text)


def run(options):
    wanted = options.figures.split(",")
    if "6" in wanted:
        figure_6([int(w) for w in options.workers.split(",")], options.seconds)
    if "8" in wanted:
        figure_8()
    if "9" in wanted:
        figure_9(options.seconds)
    if "place" in wanted:
        figure_place(options.seconds)


if __name__ == "__main__":
    main()
