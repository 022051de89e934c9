"""Dataflow graphs on a cluster of tasks. See README.md here."""

from tandem.distributed.cluster.cluster import Cluster
from tandem.distributed.cluster.server import Server
from tandem.distributed.cluster.setter import replica_device_setter
from tandem.distributed.cluster.spec import ClusterSpec

__all__ = ["Cluster", "ClusterSpec", "Server", "replica_device_setter"]
