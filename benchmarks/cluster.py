"""Steps over the tasks of a cluster, beside TensorFlow's own distributed session.

    python benchmarks/cluster.py [--cases null] [--ops 10000] [--rounds 5] [--tf-python PATH]

null: a graph of `--ops` operators on two tasks, each a process, with a controller. "null" adds a scalar of the server to one of
the worker, and fetches nothing; "chain" runs all operators, half of them on each task. In both one tensor crosses. "dense" is a
step with a parameter server: the worker pulls 32 MB and computes a gradient of them, by which the server updates them. Printed are
the bytes that the controller sends a task for a step (after the first), and the least time of a step: with the client inside the
worker's process, as classic programs have it (a Server in each process, Session(server.target)), and outside, in a process of its
own (td.distributed.Cluster). --tf-python: a Python that has tensorflow-cpu; its session runs the same graph on two tasks, in both
ways, in turn with ours. The bar is half of TensorFlow's time, in each way.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time

import tandem as td
from tandem import v1
from tandem.distributed.cluster.server import cluster_at

HERE = os.path.dirname(os.path.abspath(__file__))
BAR = 0.5
MOST_BYTES = 1024
DENSE = 8 << 20  # numbers of the parameter of "dense"


def chain(x, a, b, count):
    for k in range(count):
        x = x * a if k % 2 else x + b
    return x


WAYS = ("inside", "outside")


class Ours:
    def __init__(self, ops: int, where: str):
        self.servers: list = []
        if where == "inside":
            ports = free_ports(2)
            spec = {"ps": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{ports[1]}"]}
            code = f"from tandem import v1; s = v1.train.Server({spec}, 'ps', 0); print('ready', flush=True); s.join()"
            env = {**os.environ, "TANDEM_NUM_THREADS": "1"}
            self.servers = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env)]
            self.servers[0].stdout.readline()
            self.server = v1.train.Server(spec, "worker", 0)
            self.cluster = cluster_at(self.server.target)
        else:
            self.cluster = td.distributed.Cluster({"ps": 1, "worker": 1}, engine="processes", threads=1)
        with td.Graph() as graph:
            with td.device("/job:ps/task:0"):
                a, b, x = (td.Variable(v, name=n) for v, n in ((0.999, "a"), (0.001, "b"), (1.0, "x")))
                first = chain(x, a, b, ops // 2)
            with td.device("/job:worker/task:0"):
                c, d = td.Variable(0.999, name="c"), td.Variable(0.001, name="d")
                second = chain(first, c, d, ops // 2)
                null = (x + d).op
            with td.device("/job:ps/task:0"):
                table = td.Variable(td.zeros(DENSE), name="table")
            with td.device("/job:worker/task:0"):
                gradient = table * 0.5 + d  # the whole of it is pulled, and as much pushed
            dense = table.assign_sub(gradient).op
            init = td.global_variables_initializer()
        self.nodes = len(graph.nodes)
        self.session = td.Session(graph, target=self.cluster)
        self.session.run(init)
        self.result = self.session.run(second).item()
        self.steps = {"null": null, "chain": second, "dense": dense}

    def best(self, name: str, count: int) -> float:
        fetch, run, best = self.steps[name], self.session.run, float("inf")
        for _ in range(count):
            began = time.perf_counter()
            run(fetch)
            best = min(best, time.perf_counter() - began)
        return best

    def sent(self, name: str) -> dict[str, int]:
        """Bytes that one step sends to each task."""
        self.session.run(self.steps[name])
        before = {t: self.cluster.peer(t).bytes_sent for t in self.cluster.tasks}
        self.session.run(self.steps[name])
        return {t: self.cluster.peer(t).bytes_sent - before[t] for t in self.cluster.tasks}

    def close(self):
        self.cluster.close()
        for process in self.servers:
            process.kill()
            process.wait()


class Theirs:
    def __init__(self, python: str, ops: int, where: str):
        ports = [str(p) for p in free_ports(2)]
        script = os.path.join(HERE, "cluster_tensorflow.py")
        start = lambda *args: subprocess.Popen(
            [python, script, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        roles = ["ps"] if where == "inside" else ["ps", "worker"]
        self.servers = [start(role, *ports) for role in roles]
        for process in self.servers:
            process.stdout.readline()
        self.client = start("client", *ports, str(ops), where)
        line = self.client.stdout.readline().split()
        if line[:1] != ["result"]:
            raise SystemExit(f"TensorFlow's client ended with status {self.client.wait()}")
        self.result = float(line[1])

    def best(self, name: str, count: int) -> float:
        self.client.stdin.write(f"{name} {count}\n")
        self.client.stdin.flush()
        return float(self.client.stdout.readline())

    def close(self):
        for process in (self.client, *self.servers):
            process.kill()
            process.wait()


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def null_step(args):
    ours = {w: Ours(args.ops, w) for w in WAYS}
    peers = {w: Theirs(args.tf_python, args.ops, w) for w in WAYS} if args.tf_python else {}
    for where, peer in peers.items():
        assert abs(peer.result - ours[where].result) < 1e-3, (where, peer.result, ours[where].result)
    print(f"graph of {ours['outside'].nodes} operators on two tasks")
    try:
        for name, count in (("null", 200), ("chain", 50), ("dense", 10)):
            sent = max(ours["outside"].sent(name).values())
            best = {(who, where): float("inf") for who in ("ours", "theirs")[: 1 + bool(peers)] for where in WAYS}
            for _ in range(args.rounds):
                for who, where in best:
                    found = (ours if who == "ours" else peers)[where].best(name, count)
                    best[who, where] = min(best[who, where], found)
            text = f"{name:6} {sent:5} bytes per task and step{'' if sent < MOST_BYTES else ' (bar missed)'}"
            for where in WAYS:
                text += f"   client {where} {best['ours', where] * 1e6:6.0f} us"
                if peers:
                    ratio = best["ours", where] / best["theirs", where]
                    text += f", TensorFlow {best['theirs', where] * 1e6:6.0f} us, ratio {ratio:.2f}"
                    text += "" if ratio <= BAR else " (bar missed)"
            print(text, flush=True)
    finally:
        for one in (*peers.values(), *ours.values()):
            one.close()


CASES = {"null": null_step}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--ops", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tf-python", help="a Python with tensorflow-cpu")
    args = parser.parse_args()
    for name in args.cases.split(","):
        if name not in CASES:
            sys.exit(f"there is no case {name!r}; there are {', '.join(CASES)}")
        CASES[name](args)


if __name__ == "__main__":
    main()
