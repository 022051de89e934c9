"""Pipelines: a model as a row of stages on several ranks, and schedules of what each rank does when."""

from tandem.distributed.pipeline.runtime import Pipeline, stage
from tandem.distributed.pipeline.schedule import Action, Schedule, gpipe, interleaved, one_f_one_b, zero_bubble
from tandem.distributed.pipeline.timeline import Timeline, simulate
from tandem.distributed.pipeline.verify import verify

__all__ = [
    "Action",
    "Pipeline",
    "Schedule",
    "Timeline",
    "gpipe",
    "interleaved",
    "one_f_one_b",
    "simulate",
    "stage",
    "verify",
    "zero_bubble",
]
