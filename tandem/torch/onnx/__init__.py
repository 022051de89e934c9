"""torch.onnx on td.onnx: `export` writes the file. Symbolic functions may be registered; nothing calls them."""

from __future__ import annotations

import tandem as td

__all__ = [
    "export", "is_in_onnx_export", "is_onnxrt_backend_supported", "register_custom_op_symbolic", "unregister_custom_op_symbolic",
]  # fmt: skip


def export(
    model, args=(), f=None, *, kwargs=None, export_params: bool = True, verbose=None, input_names=None, output_names=None,
    opset_version: int | None = None, dynamo: bool = True, dynamic_axes=None, dynamic_shapes=None, do_constant_folding: bool = True,
    **unused,
):  # fmt: skip
    """Writes a module as an ONNX file, as td.onnx.save does; gives the onnx.ModelProto.

    dynamic_axes: {name of an argument: axes}; without, sizes are those of args.
    """
    if kwargs or dynamic_shapes is not None:
        raise td.UnsupportedError(
            "onnx.export", "kwargs and dynamic_shapes are not taken", fix="give args by position, and dynamic_axes"
        )
    wanted = set(input_names or ())
    dynamic = {name: list(axes) for name, axes in (dynamic_axes or {}).items() if not wanted or name in wanted} or False
    more = {} if opset_version is None else {"opset": opset_version}
    return td.onnx.save(
        model,
        args,
        f,
        dynamic=dynamic,
        input_names=input_names,
        output_names=output_names,
        fold=do_constant_folding,
        **more,
    )


def is_in_onnx_export() -> bool:
    """False: td.onnx.save reads the graph of what runs, and model code need not change for it."""
    return False


def is_onnxrt_backend_supported() -> bool:
    return False


def register_custom_op_symbolic(symbolic_name, symbolic_fn, opset_version) -> None:
    """Accepted: symbolic functions belong to PyTorch's exporter, and nothing here calls them."""


unregister_custom_op_symbolic = register_custom_op_symbolic
