"""Servers as Ray actors: one is killed, then the whole node that others are on."""

import threading
import time

import pytest

import tandem as td
from tandem.distributed import Cluster, ParameterServer
from tests.distributed.servers.workers import alone, batch, in_threads, loss_of, network, same

ADAM = lambda ps: td.optim.Adam(ps, lr=0.01)
STEPS, WORKERS = 60, 2


def lies_on(actor: dict, node) -> bool:
    return actor["State"] == "ALIVE" and actor["Address"]["NodeID"] == node.node_id


@pytest.mark.slow
def test_servers_on_ray_come_back_when_an_actor_and_when_a_node_is_killed(tmp_path):
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
    host = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = host.add_node(num_cpus=1)
    ray.init(address=host.address, log_to_driver=False, configure_logging=False)
    models, done = [network() for _ in range(WORKERS)], {"actor": threading.Event(), "node": threading.Event()}
    there = []  # servers on the node that is killed
    try:
        with Cluster({"ps": 3}, engine="ray", threads=1) as cluster:

            def make(k):
                return ParameterServer(
                    models[k], ADAM(models[k].parameters()), cluster=cluster, worker=k, workers=WORKERS, snapshots=str(tmp_path),
                    every=5, timeout=300.0,
                )  # fmt: skip

            servers = [make(k) for k in range(WORKERS)]

            def work(k):
                while servers[k].version < STEPS:
                    if k == 0 and servers[0].version >= 15 and not done["actor"].is_set():
                        done["actor"].set()
                        cluster.kill("/job:ps/task:0")
                    if k == 0 and servers[0].version >= 35 and not done["node"].is_set():
                        done["node"].set()
                        there.extend(a for a in ray._private.state.actors().values() if lies_on(a, second))
                        host.remove_node(second, allow_graceful=False)
                    loss_of(models[k], batch(servers[k].version, k)).backward()
                    servers[k].step()
                    if done["node"].is_set():
                        time.sleep(0.1)  # Ray takes a moment to end what was on the node

            with servers[0].watch() as watch:
                in_threads(WORKERS, work, 300)
            assert all(e.is_set() for e in done.values())
            assert len(there) >= 1
            assert sum(watch.restarts.values()) >= 1 + len(there)
    finally:
        ray.shutdown()
        host.shutdown()
    assert all(same(m, alone(ADAM, WORKERS, STEPS)) for m in models)
