"""lower: a graph of primitives becomes kernels and library calls over buffers."""

from __future__ import annotations

import functools

from tandem.codegen.buffer import Buffer, Layout, allocate, root_of, same_shape
from tandem.codegen.computes import Group
from tandem.codegen.concat import write_into_concats
from tandem.codegen.cpu.target import CPU
from tandem.codegen.epilogues import add_epilogues, follows_product, is_product
from tandem.codegen.expand import expand, without_unused
from tandem.codegen.fuse import Fusion
from tandem.codegen.order import failures_first, groups_before_failures
from tandem.codegen.overwrite import overwrite_last_operands
from tandem.codegen.regions import region_steps
from tandem.codegen.schedule import EpilogueStep, LibraryStep, Schedule
from tandem.codegen.target import Target
from tandem.graph.ir import Graph, Value
from tandem.ops.again import Again
from tandem.ops.define import LibraryOp
from tandem.ops.index import CheckIndex, Scatter
from tandem.ops.movement import Permute
from tandem.ops.region import Region


def lower(
    graph: Graph,
    layouts: list[Layout | None],
    saved: list[Value] = (),
    inside=None,
    target: Target = CPU,
    exact_views: bool = False,
    in_pieces: bool = False,
    body: bool = False,
    epilogues: bool = False,
    on_host=frozenset(),
) -> Schedule:
    """Steps that compute graph's outputs, saved values and mutations, for all sizes that satisfy the graph's guards.

    inside: what is done to the graphs inside regions first, if that did not happen yet.
    target: what the steps are for (target.py).
    exact_views: whether an output that only rearranges an input must be a view wherever strides allow it, as it may be written to.
    in_pieces: whether the program may begin before all is known, so that what writes inputs comes last (Note [Pieces] in
        src/program/pieces.h), where the target does so.
    body: whether it is inside of a loop or branch, whose results are stored like what is written, and are nobody's state.
    epilogues: whether kernels may run on blocks of products (epilogues.py), where the target does so: for whole programs.
    on_host: inputs that are Python numbers or single elements in host memory. On a device their values come with the launch.
    """
    before: dict[Value, Value] = {}
    prepared = target.prepared(graph, saved, layouts)
    if prepared:
        graph, before = expand(graph, prepared.get)
    graph, made = expand(graph, target.composed(layouts))
    if before:
        made = {old: made.get(new, new) for old, new in before.items()}
    if made:
        graph = without_unused(graph, [made.get(v, v) for v in saved])
    rewritten = target.rewritten(graph, [made.get(v, v) for v in saved])
    if rewritten:
        graph, again = expand(graph, rewritten.get)
        made = {old: again[new] for old, new in made.items() if new in again} if made else again
        graph = without_unused(graph, [made.get(v, v) for v in saved])
    on_host = {made.get(v, v) for v in on_host}
    waits = any(node.control for node in graph.nodes)
    in_pieces = (
        in_pieces and target.starts_early and not waits
    )  # nothing is put together across what somebody waits for
    fusion = Fusion(graph, layouts, [made.get(v, v) for v in saved], target, exact_views, in_pieces, on_host)
    nests = target.nests()
    fails_first = target.fails_first and graph.mutations
    early = groups_before_failures(fusion) if fails_first and not body else ()
    steps, copies = _place_mutations(fusion, nests["copy"], early)
    if target.joins_concats:
        write_into_concats(fusion, body)
    overwrite_last_operands(fusion)
    epilogues = epilogues and target.joins_products
    begins = in_pieces or not target.starts_early  # whether kernels are compiled as soon as they are known
    ahead = _library_steps_ahead(fusion, target) if in_pieces else {}
    products: set[int] = set()  # results of large products
    joining: dict[int, Group] = {}
    for group in fusion.groups:
        if group.kind != "library":
            steps.append(nests[group.kind](fusion, group))
            if products and follows_product(steps[-1], group, products):
                joining[id(steps[-1])] = group
            elif begins:
                target.begin(steps[-1:], alone=True)
        elif isinstance(group.node.op, Again):
            continue  # it only has a place in the order
        elif isinstance(group.node.op, Region):
            inner = functools.partial(lower, body=True, epilogues=epilogues)
            steps += region_steps(fusion, group.node, inner, nests["copy"], inside, target)
        elif id(group) in ahead:
            steps += ahead[id(group)]
        else:
            steps += target.library_steps(fusion, _library_step(fusion, group))
            if epilogues and is_product(steps[-1]):
                products.add(id(steps[-1].outputs[0]))
    steps += copies
    if joining:
        steps = add_epilogues(fusion, steps, joining, body)
        target.begin([s for s in steps if id(s) in joining or isinstance(s, EpilogueStep)])
    buffer_of = {
        value: buffer for value, buffer in fusion.buffer_of.items()
        if value not in fusion.computes or fusion.computes[value].stored
    }  # fmt: skip
    if not waits:
        steps = target.finish(steps)
    if in_pieces:
        target.begin(steps)
    if fails_first:
        steps = failures_first(steps)
    if made:
        buffer_of = {old: buffer_of[new] for old, new in made.items() if new in buffer_of}
    return Schedule(steps, buffer_of)


def _library_steps_ahead(fusion: Fusion, target: Target) -> dict[int, list]:
    """Steps of library groups, by the group's id: kernels written by hand are large, so their compilation begins first."""
    ahead = {}
    for group in fusion.groups:
        if group.kind == "library" and not isinstance(group.node.op, (Again, Region)):
            ahead[id(group)] = target.library_steps(fusion, _library_step(fusion, group))
            target.begin(ahead[id(group)], alone=True)
    return ahead


def _library_step(fusion: Fusion, group: Group) -> LibraryStep:
    node = group.node
    ints, floats = node.op.attributes(*[v.type for v in node.inputs])
    outputs = [] if isinstance(node.op, CheckIndex) else [fusion.buffer_of[v] for v in node.outputs]
    inputs = [fusion.buffer_of[v] for v in node.inputs]
    return LibraryStep(node.op.routine, inputs, outputs, tuple([fusion.resolve(d) for d in ints]), tuple(floats), node)


def _place_mutations(fusion: Fusion, copy, early) -> tuple[list, list]:
    """Lets kernels write straight into mutated inputs where nobody can see the difference.

    For the rest, returns steps to run before all others, which keep what is overwritten but needed, and copies to run at the end.
    Groups that are `early` may not write.
    """
    graph = fusion.graph
    if not graph.mutations:
        return [], []
    readers: dict[int, list] = {}  # id of an input's buffer -> [(group, compute, axis map)]
    for group in fusion.groups:
        for member in group.members:
            for value, axis_map in member.reads:
                readers.setdefault(id(root_of(fusion.buffer_of[value])), []).append((group, member, axis_map))
        if group.kind == "library":
            for value in group.node.inputs:
                readers.setdefault(id(root_of(fusion.buffer_of[value])), []).append((group, None, None))
    mutated = {id(fusion.buffer_of[graph.inputs[position]]) for position, _ in graph.mutations}
    late, first, second = [], [], []
    for position, value in graph.mutations:
        target = fusion.buffer_of[graph.inputs[position]]
        if value is graph.inputs[position]:
            continue
        if early and fusion.provider.get(_unpermuted(value)[1]) in early:
            direct = False
        elif _can_store_directly(fusion, value, target, readers.get(id(target), ())):
            fusion.computes[value].targets.append(target)
            direct = True
        else:
            direct = _scatter_directly(fusion, value, target, readers.get(id(target), ())) or _library_directly(
                fusion, value, target, readers.get(id(target), ())
            )
        if direct:
            continue
        late.append((value, target))
        if value in fusion.computes:
            fusion.computes[value].stored = True
        else:
            fusion._need(value)
    for value, target in late:
        source = fusion.buffer_of[value]
        if id(root_of(source)) in mutated:  # it may have changed before its turn comes
            kept = allocate(source.dtype, source.shape)
            first.append(copy(fusion, source, kept, value.node))
            source = kept
        second.append(copy(fusion, source, target, value.node))
    return first, second


def _scatter_directly(fusion: Fusion, value: Value, target: Buffer, readers) -> bool:
    """Lets a scatter into (a permutation of) the mutated input write there, if nothing reads that memory afterwards."""
    after, scattered = _unpermuted(value)
    if not isinstance(scattered.op, Scatter):
        return False
    before, source = _unpermuted(scattered.node.inputs[0])
    if fusion.buffer_of.get(source) is not target or [before[a] for a in after] != list(range(len(after))):
        return False
    if scattered in fusion.saved or (scattered is not value and scattered in fusion.graph.outputs):
        return False
    if any(len(fusion.users.get(v, ())) > 1 for v in (scattered, value)):
        return False
    position = fusion.provider[scattered].position
    if any(group.position > position for group, _, _ in readers):
        return False
    fusion.buffer_of[scattered] = fusion.buffer_of[scattered.node.inputs[0]]
    fusion.buffer_of[value] = target
    return True


def _library_directly(fusion: Fusion, value: Value, target: Buffer, readers) -> bool:
    """Lets a routine write its result into an input that nothing reads: where the body of a loop puts its results."""
    if not isinstance(value.op, LibraryOp) or isinstance(value.op, CheckIndex) or readers:
        return False
    if sum(v is value for _, v in fusion.graph.mutations) > 1:
        return False
    buffer = fusion.buffer_of[value]
    if value in fusion.saved or value in fusion.graph.outputs or buffer.kind != "alloc":
        return False
    if not same_shape(buffer.shape, target.shape) or not same_shape(buffer.strides, target.strides):
        return False
    if any(b is not buffer and b.kind == "view" and b.base is buffer for b in fusion.buffer_of.values()):
        return False
    fusion.buffer_of[value] = target
    return True


def _unpermuted(value: Value) -> tuple[list[int], Value]:
    """(axes, source): value is Permute(axes) of source, by any number of permutations."""
    axes = list(range(len(value.type.shape)))
    while isinstance(value.op, Permute):
        axes = [value.op.axes[a] for a in axes]
        value = value.node.inputs[0]
    return axes, value


def _can_store_directly(fusion: Fusion, value: Value, target: Buffer, readers) -> bool:
    compute = fusion.computes.get(value)
    if compute is None:
        return False
    of_columns = fusion.target.writes_columns and compute.role == "kept" and compute.group.kind == "columns"
    if not of_columns and (compute.role != "full" or compute.group.kind != "elementwise"):
        return False
    roles = ("kept",) if of_columns else ("full", "partial")
    if not same_shape(fusion.shape_of(value), target.shape):
        return False
    for group, member, axis_map in readers:
        if group.position < compute.group.position:
            continue
        if group is not compute.group or member is None or axis_map is None or member.role not in roles:
            return False
        for axis, space_axis in enumerate(axis_map):
            if space_axis >= 0 and member.axis_of[space_axis] != compute.axis_of.get(axis):
                return False
        if len([a for a in axis_map if a >= 0]) != len(compute.axis_of):
            return False
    return True
