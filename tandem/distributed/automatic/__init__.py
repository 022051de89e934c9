"""Automatic parallelism: how a training step is divided over a mesh, found by an integer program."""

from tandem.distributed.automatic.plan import ParallelPlan, load_plan, parallelize

__all__ = ["ParallelPlan", "load_plan", "parallelize"]
