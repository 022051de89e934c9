"""Workers, servers and controllers that die: training ends with the right answer, and nobody hangs."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

import tandem as td
from tandem.distributed import Cluster, ParameterServer
from tandem.distributed.servers import client, recovery
from tests.distributed.servers.workers import alone, batch, in_threads, loss_of, network, same

ADAM = lambda ps: td.optim.Adam(ps, lr=0.01)


class Killed(Exception):
    pass


def train(cluster, models, steps, folder, mode="sync", dies=lambda worker, step: False, pace=0.0, **options):
    """Workers as threads; one that dies is replaced by another of its number, with a model of its own."""
    workers = len(models)

    def live(k):
        model = models[k]
        server = ParameterServer(
            model, ADAM(model.parameters()), mode=mode, cluster=cluster, worker=k, workers=workers, snapshots=str(folder),
            every=2, timeout=300.0, resume=True, **options,
        )  # fmt: skip
        while server.version < steps:
            version = server.version
            loss_of(model, batch(version, k)).backward()
            if dies(k, version):
                server.push()  # some servers may have it, some may not
                raise Killed
            time.sleep(pace)
            server.step()

    def work(k):
        while True:
            try:
                return live(k)
            except Killed:
                models[k] = network(seed=5)

    in_threads(workers, work)


def test_a_worker_that_dies_is_replaced_and_the_result_is_the_same(tmp_path):
    models, died = [network(), network()], set()

    def dies(worker, step):
        now = (worker, step) in {(0, 1), (1, 3), (0, 4)} and (worker, step) not in died
        died.add((worker, step)) if now else None
        return now

    with Cluster({"ps": 2}, engine="threads") as cluster:
        train(cluster, models, 6, tmp_path, dies=dies)
    assert len(died) == 3
    assert all(same(m, alone(ADAM, 2, 6)) for m in models)


def test_servers_that_die_come_back_from_snapshots_that_belong_together(tmp_path):
    models = [network(), network()]
    rng = random.Random(0)
    with Cluster({"ps": 2}, engine="threads") as cluster:
        model = network()
        watched = ParameterServer(
            model, ADAM(model.parameters()), mode="sync", cluster=cluster, workers=2, snapshots=str(tmp_path), every=2
        )
        kills, over = [], threading.Event()

        def killer():
            while len(kills) < 3 and not over.wait(0.05 + 0.1 * rng.random()):
                task = rng.choice(watched.servers)
                cluster.kill(task)
                kills.append(task)

        with watched.watch(interval=0.02) as watch:
            thread = threading.Thread(target=killer)
            thread.start()
            train(cluster, models, 30, tmp_path, pace=0.01)
            over.set()
            thread.join()
        assert sum(watch.restarts.values()) >= 1
    assert all(same(m, alone(ADAM, 2, 30)) for m in models)


def test_a_pull_that_meets_servers_on_their_way_back_goes_back_too(tmp_path, monkeypatch):
    with Cluster({"ps": 2}, engine="threads") as cluster:
        model = network()
        server = ParameterServer(
            model, ADAM(model.parameters()), cluster=cluster, snapshots=str(tmp_path), every=1, timeout=60.0
        )
        for _ in range(2):
            loss_of(model, batch(server.version, 0)).backward()
            server.step()
        ask, met = server.call_all, []

        def in_between(name, calls):
            """The first server answers before all go back, the second after it."""
            if name != "ps.pull" or met:
                return ask(name, calls)
            met.append(ask(name, calls[:1]))
            for peer in map(cluster.peer, server.servers):
                peer.call("ps.restore", server.name, 1, 1)
            return [*met[0], *ask(name, calls[1:])]

        monkeypatch.setattr(server, "call_all", in_between)
        server.pull()
        assert met[0][0][0]["version"] == 2
        assert (server.version, server.generation) == (1, 1)
        assert same(model, alone(ADAM, 1, 1))


def test_another_program_goes_on_from_the_snapshots(tmp_path):
    with Cluster({"ps": 2}, engine="threads") as cluster:
        train(cluster, [network(), network()], 5, tmp_path)  # snapshots of 0, 2, 4
    models = [network(seed=9), network(seed=9)]
    with Cluster({"ps": 2}, engine="threads") as cluster:
        train(cluster, models, 8, tmp_path)
    assert all(same(m, alone(ADAM, 2, 8)) for m in models)
    with Cluster({"ps": 2}, engine="threads") as cluster:  # and one that does not resume begins anew
        model = network()
        server = ParameterServer(
            model, ADAM(model.parameters()), cluster=cluster, snapshots=str(tmp_path), every=2, mode="async"
        )
        assert server.version == 0 and server.describe()["/job:ps/task:0"]["snapshots"] == [0]


def test_a_worker_that_joins_leaves_the_snapshots_of_the_others_alone(tmp_path):
    with Cluster({"ps": 2}, engine="threads") as cluster:

        def join(worker):
            model = network()
            return model, ParameterServer(
                model, ADAM(model.parameters()), mode="async", cluster=cluster, worker=worker, workers=2, snapshots=str(tmp_path),
                every=1,
            )  # fmt: skip

        model, server = join(0)
        loss_of(model, batch(0, 0)).backward()
        server.step()
        server.snapshot()  # and waits until it is written
        cluster.restart("/job:ps/task:1")  # and nobody has given it its state back yet
        join(1)
        found = {p.name for p in (tmp_path / "server-1").iterdir()}
        assert found == {"000000000000.safetensors", "000000000001.safetensors"}


def test_asynchronous_training_goes_on_while_a_server_comes_back(tmp_path):
    with Cluster({"ps": 2}, engine="threads") as cluster:
        model = network()
        server = ParameterServer(
            model,
            td.optim.SGD(model.parameters(), lr=0.1),
            mode="async",
            cluster=cluster,
            snapshots=str(tmp_path),
            every=1,
        )
        with server.watch(interval=0.02) as watch:
            first = float(loss_of(model, batch(0, 0, 64)))
            for step in range(20):
                if step == 10:
                    cluster.kill("/job:ps/task:1")
                loss_of(model, batch(0, 0, 64)).backward()
                server.step()
        assert watch.restarts["/job:ps/task:1"] == 1
        assert float(loss_of(model, batch(0, 0, 64))) < 0.95 * first
        assert server.describe()["/job:ps/task:0"]["version"] == 20


def test_a_server_gets_its_state_though_another_dies_as_it_comes_back(tmp_path, monkeypatch):
    first, second = "/job:ps/task:0", "/job:ps/task:1"
    with Cluster({"ps": 2}, engine="threads") as cluster:
        model = network()
        optimizer = td.optim.SGD(model.parameters(), lr=0.1)
        server = ParameterServer(model, optimizer, mode="async", cluster=cluster, snapshots=str(tmp_path), every=1)
        for step in range(3):
            loss_of(model, batch(step, 0)).backward()
            server.step()
        server.snapshot()  # and waits until it is written
        watch, restart = server.watch(), cluster.restart

        def restart_and_kill(task):
            restart(task)
            if task == first:
                cluster.kill(second)

        monkeypatch.setattr(cluster, "restart", restart_and_kill)
        cluster.kill(first)
        with pytest.raises(td.TaskError):
            watch.check()
        watch.check()
        assert watch.restarts == {first: 1, second: 1}
        assert {task: found["version"] for task, found in server.describe().items()} == {first: 3, second: 3}


def test_a_program_that_resumes_waits_for_a_server_that_dies_meanwhile(tmp_path, monkeypatch):
    with Cluster({"ps": 2}, engine="threads") as cluster:
        train(cluster, [network(), network()], 3, tmp_path)
    tried = []

    def dying(server, lost):
        tried.append(lost)
        if len(tried) == 1:
            raise td.TaskError("recover", "/job:ps/task:1 is gone")
        recovery.recover(server, lost)

    monkeypatch.setattr(client, "recover", dying)
    with Cluster({"ps": 2}, engine="threads") as cluster:
        model = network(seed=9)
        server = ParameterServer(
            model, ADAM(model.parameters()), cluster=cluster, workers=2, snapshots=str(tmp_path), every=2, resume=True
        )
        assert server.version == 2 and len(tried) == 2


def test_a_server_that_nobody_starts_again_is_named():
    with Cluster({"ps": 2}, engine="threads") as cluster:
        model = network()
        server = ParameterServer(
            model, td.optim.SGD(model.parameters(), lr=0.1), mode="async", cluster=cluster, timeout=0.3
        )
        cluster.kill("/job:ps/task:1")
        loss_of(model, batch(0, 0)).backward()
        with pytest.raises(td.DeadlineError, match="/job:ps/task:1 has not come back"):
            server.step()
        with pytest.raises(ValueError, match="no snapshots"):
            server.watch()


@pytest.mark.slow
def test_twenty_kills_of_processes_at_random_moments(tmp_path):
    """Workers, servers and the controller are killed with -9; the result is that of an undisturbed run, bit by bit."""
    steps, kills, killed, rng = 1000, 20, [], random.Random(1)
    command = [sys.executable, "-m", "tests.distributed.servers.controller_program", str(tmp_path), str(steps)]
    begin = lambda: subprocess.Popen(command)
    process, end = begin(), time.monotonic() + 500
    while process.poll() != 0:
        assert time.monotonic() < end, f"not over after {killed}"
        if process.poll() is not None:
            process = begin()
        time.sleep(rng.uniform(0.3, 2.0))
        if len(killed) == kills:
            continue
        try:
            pids = json.loads((tmp_path / "pids").read_text())
        except FileNotFoundError:
            continue
        kind = rng.choice(sorted({n.rstrip("0123456789") for n in pids}))
        name = rng.choice(sorted(n for n in pids if n.startswith(kind)))
        if name == "controller" and pids[name] != process.pid:
            continue
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[name], signal.SIGKILL)
            killed.append(name)
            (tmp_path / "pids").unlink()
    assert len(killed) == kills, f"it was over after {killed}"
    assert {n.rstrip("0123456789") for n in killed} == {"controller", "worker ", "/job:ps/task:"}
    expected = alone(ADAM, 2, steps)
    for k in range(2):
        found = td.load(tmp_path / f"result-{k}.safetensors")
        assert all(bool((a == b).all()) for a, b in zip(found, expected, strict=True))
