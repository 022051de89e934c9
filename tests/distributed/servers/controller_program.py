"""A training program that a test kills: controller, servers and workers are processes. Arguments: folder, steps.

python -m tests.distributed.servers.controller_program FOLDER STEPS
python -m tests.distributed.servers.controller_program FOLDER STEPS WORKER      what it starts for each worker
"""

import json
import os
import subprocess
import sys
import threading
import time

import tandem as td
from tandem.distributed import Cluster, ParameterServer
from tests.distributed.servers.workers import batch, loss_of, network

WORKERS = 2
PACE = 0.02


def server_of(model, cluster, folder, worker):
    return ParameterServer(
        model, td.optim.Adam(model.parameters(), lr=0.01), mode="sync", cluster=cluster, worker=worker, workers=WORKERS,
        snapshots=f"{folder}/snapshots", every=5, resume=True, timeout=300.0,
    )  # fmt: skip


def ends_with_its_parent():
    sys.stdin.read()
    os._exit(3)


def worker(folder: str, steps: int, number: int):
    found = json.loads(sys.stdin.readline())
    threading.Thread(target=ends_with_its_parent, daemon=True).start()
    cluster = Cluster.connect(found["addresses"], bytes.fromhex(found["key"]))
    model = network()
    server = server_of(model, cluster, folder, number)
    while server.version < steps:
        loss_of(model, batch(server.version, number)).backward()
        time.sleep(PACE)
        server.step()
    td.save([p.detach() for p in model.parameters()], f"{folder}/result-{number}.safetensors")


def controller(folder: str, steps: int):
    cluster = Cluster({"ps": 2}, threads=1)
    model = network()
    server = server_of(model, cluster, folder, 0)
    message = json.dumps({"addresses": cluster.addresses, "key": cluster.key.hex()}) + "\n"
    workers: dict[int, subprocess.Popen] = {}

    def start(k):
        workers[k] = subprocess.Popen(
            [sys.executable, "-m", "tests.distributed.servers.controller_program", folder, str(steps), str(k)],
            stdin=subprocess.PIPE,
        )
        workers[k].stdin.write(message.encode())
        workers[k].stdin.flush()

    def tell():
        pids = {f"worker {k}": p.pid for k, p in workers.items() if p.poll() is None}
        pids |= {t: p.pid for t, p in cluster.engine.processes.items() if p.poll() is None}
        with open(f"{folder}/pids.new", "w") as file:
            json.dump(pids | {"controller": os.getpid()}, file)
        os.replace(f"{folder}/pids.new", f"{folder}/pids")

    for k in range(WORKERS):
        start(k)
    with server.watch():
        while any(p.poll() != 0 for p in workers.values()):
            for k, p in list(workers.items()):
                if p.poll() not in (None, 0):
                    start(k)
            tell()
            time.sleep(0.05)
    cluster.close()


if __name__ == "__main__":
    if len(sys.argv) > 3:
        worker(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        controller(sys.argv[1], int(sys.argv[2]))
