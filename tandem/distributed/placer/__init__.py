"""Placement found automatically. See README.md here."""

from tandem.distributed.placer.costs import PlacementCosts, measure_nodes
from tandem.distributed.placer.measure import measure_cluster
from tandem.distributed.placer.place import PlacementPlan, place

__all__ = ["PlacementCosts", "PlacementPlan", "measure_cluster", "measure_nodes", "place"]
