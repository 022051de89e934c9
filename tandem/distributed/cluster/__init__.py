"""Dataflow graphs on a cluster of tasks. See README.md here."""

from tandem.distributed.cluster.cluster import Cluster
from tandem.distributed.cluster.spec import ClusterSpec

__all__ = ["Cluster", "ClusterSpec"]
