"""A training step on a cluster that nobody here has: when each device does what, how long it takes, what it moves and keeps.

Note [Simulated steps]
Devices of one tensor group do the same at the same time, so one of them stands for the group; data parallel replicas differ only by
how slow their devices are. So a step is the simulation of one pipeline for each kind of replica (pipeline/timeline.py), with
the times of forward and backward from the cost model, and then what all replicas do together: the sum of gradients, and the update.
Devices are numbered so that tensor groups are neighbours, then data parallel ones, then stages: the most talkative are closest.
"""

from __future__ import annotations

import dataclasses

from tandem.distributed.pipeline.schedule import Action, Schedule, interleaved, schedule_of
from tandem.distributed.pipeline.timeline import Timeline, simulate
from tandem.distributed.pipeline.verify import most_kept
from tandem.distributed.simulator.model import BYTES, STATE, Transformer
from tandem.distributed.topology import Topology
from tandem.errors import ValueRangeError


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a step is divided among devices.

    data, tensor, pipeline: replicas; devices that share each layer; stages
    micro_batch: sequences that go through the pipeline together
    schedule: "gpipe", "1f1b", "zero_bubble", "interleaved"; chunks: stages on each device of an interleaved one
    recompute: whether layers keep their input only; shard_state: whether replicas divide the optimiser's state (ZeRO-1)
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    micro_batch: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    recompute: bool = True
    shard_state: bool = False

    @property
    def devices(self) -> int:
        return self.data * self.tensor * self.pipeline

    def __str__(self):
        more = f" x{self.chunks}" if self.chunks > 1 else ""
        return (
            f"data {self.data}, tensor {self.tensor}, pipeline {self.pipeline}, micro-batch {self.micro_batch}, "
            f"{self.schedule}{more}{', recompute' if self.recompute else ''}{', sharded state' if self.shard_state else ''}"
        )


@dataclasses.dataclass(frozen=True)
class Report:
    """What a simulated step takes. Times in seconds, sizes in bytes."""

    model: Transformer
    plan: Plan
    topology: Topology
    batch: int
    time: float
    timeline: Timeline  # of the slowest replica
    gradients: float  # seconds of summing gradients that nothing hides
    update: float  # seconds of the optimiser
    memory: float  # of the fullest device
    bytes: dict[str, float]  # that one device sends in a step, by reason

    @property
    def utilisation(self) -> float:
        """The part of the advertised operations that the model itself needs."""
        return self.model.step_operations(self.batch) / (
            self.time * self.plan.devices * self.topology.device.advertised
        )

    @property
    def operations(self) -> float:
        """A second and device, with those that are done again."""
        again = self.model.layers * self.model.layer_operations(self.batch) if self.plan.recompute else 0.0
        return (self.model.step_operations(self.batch) + again) / (self.time * self.plan.devices)

    @property
    def fits(self) -> bool:
        return self.memory <= self.topology.device.memory

    def days(self, tokens: float) -> float:
        """To train on so many tokens."""
        return tokens / (self.batch * self.model.context) * self.time / 86400

    def __str__(self):
        moved = ", ".join(f"{name} {size / 1e9:.2f} GB" for name, size in self.bytes.items() if size)
        return (
            f"{self.plan} on {self.plan.devices} devices: {self.time:.2f} s a step, {self.operations / 1e12:.0f} "
            f"teraoperations/s a device, {self.utilisation:.0%} utilisation, {self.timeline.idle:.0%} bubble, "
            f"{self.memory / 1e9:.0f} GB{'' if self.fits else ' (too much)'}; sends {moved or 'nothing'}"
        )


def simulate_training(model: Transformer, plan: Plan, topology: Topology, batch: int, slow=None) -> Report:
    """A step of `batch` sequences.

    slow: {device: factor}: devices that take that many times as long

    >>> from tandem.distributed.simulator import Plan, Transformer, simulate_training
    >>> model = Transformer(layers=24, width=2304, heads=24)
    >>> report = simulate_training(model, Plan(data=32, micro_batch=16), td.distributed.Topology.a100(nodes=4), batch=512)
    >>> report.fits, 0.3 < report.utilisation < 0.5
    (True, True)
    """
    _check(model, plan, topology, batch)
    count = batch // plan.data // plan.micro_batch
    schedule = _schedule(plan, count)
    times = _times(model, plan, topology)
    link = topology.link([0, plan.tensor * plan.data]).time(model.boundary(plan.micro_batch) / plan.tensor)
    timelines = []
    for factors in _kinds_of_replicas(plan, slow or {}):
        slowed = lambda a, f=factors: times(a) * f[schedule.rank_of(a.stage)]
        timelines.append(simulate(schedule, slowed, link if plan.pipeline > 1 else None))
    slowest = max(timelines, key=lambda t: t.total)
    gradients, update = _finish(model, plan, topology, slowest)
    return Report(
        model, plan, topology, batch, slowest.total + gradients + update, slowest, gradients, update,
        _memory(model, plan, schedule), _bytes(model, plan, count),
    )  # fmt: skip


def _check(model: Transformer, plan: Plan, topology: Topology, batch: int):
    def refuse(text: str):
        raise ValueRangeError("simulate_training", text)

    if plan.devices > topology.devices:
        refuse(f"the plan needs {plan.devices} devices; there are {topology.devices}")
    if batch % (plan.data * plan.micro_batch):
        refuse(f"a batch of {batch} is no multiple of {plan.data} replicas x micro-batches of {plan.micro_batch}")
    if model.layers % (plan.pipeline * plan.chunks):
        refuse(f"{model.layers} layers cannot be divided evenly among {plan.pipeline * plan.chunks} stages")
    if model.heads % plan.tensor:
        refuse(f"{model.heads} heads cannot be divided evenly among {plan.tensor} devices")


def _schedule(plan: Plan, micro_batches: int) -> Schedule:
    if plan.chunks > 1 or plan.schedule == "interleaved":
        return interleaved(plan.pipeline, micro_batches, plan.chunks)
    return schedule_of(plan.schedule, plan.pipeline, plan.pipeline, micro_batches)


def _kinds_of_replicas(plan: Plan, slow: dict[int, float]) -> set[tuple[float, ...]]:
    """How many times as long each stage takes, for each kind of replica."""
    kinds = set()
    for replica in range(plan.data if slow else 1):
        first = lambda s, r=replica: (s * plan.data + r) * plan.tensor
        group = lambda s, f=first: range(f(s), f(s) + plan.tensor)
        kinds.add(tuple(max(slow.get(d, 1.0) for d in group(s)) for s in range(plan.pipeline)))
    return kinds


def _times(model: Transformer, plan: Plan, topology: Topology):
    """Seconds of an action on a device."""
    device, rows = topology.device, plan.micro_batch
    products = model.layer_operations(rows) / plan.tensor / device.operations
    others = model.layer_traffic(rows, plan.tensor) / device.bandwidth + 20 * device.launch
    shared = 2 * topology.all_reduce(model.boundary(rows), range(plan.tensor))
    layer = products + others + shared
    head = model.head_operations(rows) / plan.tensor / device.operations
    layers = model.layers // (plan.pipeline * plan.chunks)
    last = plan.pipeline * plan.chunks - 1

    def seconds(action: Action) -> float:
        forward = layers * layer + (head if action.stage == last else 0.0)
        inputs = forward + (layers * layer if plan.recompute else 0.0)
        weights = layers * products + (head if action.stage == last else 0.0)
        return {"F": forward, "I": inputs, "W": weights, "B": inputs + weights}[action.kind]

    return seconds


def _device_parameters(model: Transformer, plan: Plan) -> float:
    """Of the fullest device: one with an end of the model."""
    own = model.layers / plan.pipeline * model.layer_parameters
    return (own + (model.vocabulary + model.context) * model.width) / plan.tensor


def _finish(model: Transformer, plan: Plan, topology: Topology, timeline: Timeline) -> tuple[float, float]:
    """Seconds of summing gradients beyond the last backward, which hides the sums of later layers; and of the update."""
    parameters = _device_parameters(model, plan)
    replicas = [r * plan.tensor for r in range(plan.data)]
    whole = topology.all_reduce(parameters * BYTES, replicas)
    last = max(s.end - s.begin for row in timeline.rows for s in row[-1:])
    stages = timeline.schedule.stages // timeline.schedule.ranks
    hidden = last * stages * 0.5 if plan.data > 1 else 0.0  # sums go on while the last micro-batch goes back
    updated = parameters / (plan.data if plan.shard_state else 1)
    return max(whole - hidden, 0.1 * whole), updated * (STATE + 8) / topology.device.bandwidth


def _memory(model: Transformer, plan: Plan, schedule: Schedule) -> float:
    parameters = _device_parameters(model, plan)
    state = parameters * (4 + (STATE - 4) / (plan.data if plan.shard_state else 1))
    layers = model.layers // (plan.pipeline * plan.chunks)
    saved = max(most_kept(schedule)) * layers * model.activations(plan.micro_batch, plan.tensor, plan.recompute)
    working = model.activations(plan.micro_batch, plan.tensor, False)
    scores = 2 * plan.micro_batch * model.context * model.vocabulary * 4 / plan.tensor if plan.pipeline == 1 else 0.0
    return state + saved + working + scores


def _bytes(model: Transformer, plan: Plan, count: int) -> dict[str, float]:
    boundary, t, d = model.boundary(plan.micro_batch), plan.tensor, plan.data
    passes = 4 + (2 if plan.recompute else 0)  # all-reduces of a layer
    layers = model.layers / plan.pipeline
    return {
        "tensor": count * layers * passes * 2 * (t - 1) / t * boundary,
        "pipeline": 2 * count * plan.chunks * boundary / t if plan.pipeline > 1 else 0.0,
        "data": 2 * (d - 1) / d * _device_parameters(model, plan) * BYTES,
    }


def plan_training(model: Transformer, topology: Topology, batch: int, most: int = 10) -> list[Report]:
    """The plans that train fastest on all devices, the fastest first, of those that fit into memory.

    >>> from tandem.distributed.simulator import Transformer, plan_training
    >>> model = Transformer(layers=24, width=1024, heads=16)
    >>> best = plan_training(model, td.distributed.Topology.a100(nodes=1), batch=64)[0]
    >>> best.plan.devices, best.fits
    (8, True)
    """
    found: list[Report] = []
    bounded = ((_at_least(model, plan, topology, batch), plan) for plan in _plans(model, topology, batch))
    for bound, plan in sorted(bounded, key=lambda item: item[0]):
        if len(found) >= most and bound >= sorted(r.time for r in found)[most - 1]:
            break
        schedule = _schedule(plan, batch // plan.data // plan.micro_batch)
        if _memory(model, plan, schedule) <= topology.device.memory:
            found.append(simulate_training(model, plan, topology, batch))
    if not found:
        raise ValueRangeError(
            "plan_training", f"{model.parameters / 1e9:.1f} billion parameters do not fit on {topology.devices} devices",
            fix="add devices, or use a smaller model",
        )  # fmt: skip
    return sorted(found, key=lambda r: r.time)[:most]


def _at_least(model: Transformer, plan: Plan, topology: Topology, batch: int) -> float:
    """Seconds that the busiest device of a plan works."""
    times = _times(model, plan, topology)
    count = batch // plan.data // plan.micro_batch
    stages = range(plan.pipeline - 1, plan.pipeline * plan.chunks, plan.pipeline)  # those of the last device
    return count * sum(times(Action(kind, s, 0)) for s in stages for kind in "FB")


def _plans(model: Transformer, topology: Topology, batch: int):
    n = topology.devices
    for tensor in _divisors(topology.per_node):
        for pipeline in _divisors(n // tensor):
            data = n // tensor // pipeline
            if model.heads % tensor or model.layers % pipeline or batch % data:
                continue
            for micro_batch in (1, 2, 4, 8, 16):
                if batch % (data * micro_batch):
                    continue
                count = batch // data // micro_batch
                for chunks in (1, 2, 4) if pipeline > 1 else (1,):
                    if model.layers % (pipeline * chunks) or (chunks > 1 and count % pipeline):
                        continue
                    name = "interleaved" if chunks > 1 else "1f1b"
                    for recompute in (False, True):
                        for shard in (False, True) if data > 1 else (False,):
                            yield Plan(data, tensor, pipeline, micro_batch, name, chunks, recompute, shard)


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]
