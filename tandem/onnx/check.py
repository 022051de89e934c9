"""What the standard asks of a node: how many inputs and outputs, which attributes, of which kinds."""

from __future__ import annotations

from tandem.errors import UnsupportedError


def schema_of(node):
    """What the standard says of a node's operator; None where it does not know it."""
    from onnx import defs

    try:
        return defs.get_schema(node.op, node.version, node.domain)
    except defs.SchemaError:
        return None


def check_node(node, proto):
    """Refuses a node that no file should hold. Operators that the standard does not know are not looked at."""
    schema = schema_of(node)
    if schema is None:
        return
    _count(node, "inputs", node.inputs, schema.min_input, schema.max_input)
    _count(node, "outputs", node.outputs, schema.min_output, schema.max_output)
    for given in proto.attribute:
        declared = schema.attributes.get(given.name)
        if declared is not None and not given.ref_attr_name and int(declared.type) != given.type:
            name = given.AttributeType.Name(given.type)
            raise _damaged(node, f"the attribute {given.name!r} is of kind {name}; it must be {declared.type.name}")
    names = {a.name for a in proto.attribute}
    for name, declared in schema.attributes.items():
        if declared.required and name not in names:
            raise _damaged(node, f"the attribute {name!r} is not given, which the operator cannot do without")


def _count(node, kind: str, values: list, least: int, most: int):
    if not least <= len(values) <= most:
        wanted = str(least) if least == most else f"{least} to {most}" if most < 2**31 - 1 else f"at least {least}"
        raise _damaged(node, f"it has {len(values)} {kind}; the operator has {wanted}")


def _damaged(node, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"onnx {node.op}",
        f"node {node.name or (node.outputs or ['?'])[0]!r} does not follow the standard (version {node.version}): {what}",
        fix="onnx.checker.check_model(path) says more; export the model again",
    )
