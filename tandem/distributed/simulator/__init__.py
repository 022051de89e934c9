"""Training on clusters that one does not have, simulated: time, utilisation, bytes, memory; slow workers and failures."""

from tandem.distributed.simulator.failures import FailuresReport, simulate_failures
from tandem.distributed.simulator.model import Transformer
from tandem.distributed.simulator.plans import PlanReport, simulate_plan
from tandem.distributed.simulator.training import Plan, Report, plan_training, simulate_training
from tandem.distributed.simulator.workers import WorkersReport, simulate_workers, straggling

__all__ = [
    "FailuresReport", "Plan", "PlanReport", "Report", "Transformer", "WorkersReport", "plan_training", "simulate_failures",
    "simulate_plan", "simulate_training", "simulate_workers", "straggling",
]  # fmt: skip
