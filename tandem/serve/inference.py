"""The Open Inference Protocol, version 2, with its extension for binary data: requests to arrays and arrays to answers."""

from __future__ import annotations

import json
import math

import numpy as np

from tandem.dtypes import DType
from tandem.serve.errors import invalid
from tandem.serve.store import TYPES, TensorModel

NAMES = {dtype: name for name, dtype in TYPES.items()}


def metadata(model: TensorModel, versions: list[str]) -> dict:
    def described(values: dict) -> list[dict]:
        return [{"name": n, "datatype": NAMES[t], "shape": list(s)} for n, (t, s) in values.items()]

    return {
        "name": model.name, "versions": versions, "platform": "tandem", "inputs": described(model.inputs),
        "outputs": described(model.outputs),
    }  # fmt: skip


def read_request(model: TensorModel, body: bytes, header_length: str | None) -> tuple[dict[str, np.ndarray], dict]:
    """(arrays by name, the JSON of the request)."""
    text, binary = body, memoryview(b"")
    if header_length is not None:
        if not header_length.isdigit() or int(header_length) > len(body):
            raise invalid(f"Inference-Header-Content-Length is {header_length!r}; the body has {len(body)} bytes")
        text, binary = body[: int(header_length)], memoryview(body)[int(header_length) :]
    request = read_json(text)
    inputs = request.get("inputs")
    if not isinstance(inputs, list) or not all(isinstance(i, dict) for i in inputs):
        raise invalid('"inputs" must be a list of objects with name, shape, datatype and data')
    arrays: dict[str, np.ndarray] = {}
    for given in inputs:
        name = given.get("name")
        if not isinstance(name, str) or name not in model.inputs or name in arrays:
            raise invalid(f"there is an input {name!r}; {model.name} takes {sorted(model.inputs)}, each once")
        arrays[name], binary = _read_input(given, *model.inputs[name], binary)
    check_parameters(request)
    if not isinstance(request.get("id", ""), str | int):
        raise invalid('"id" must be a text')
    outputs = request.get("outputs") or []
    if not isinstance(outputs, list) or not all(
        isinstance(o, dict) and isinstance(o.get("name"), str) for o in outputs
    ):
        raise invalid('"outputs" must be a list of objects with a name')
    for output in outputs:
        check_parameters(output)
    missing = sorted(set(model.inputs) - set(arrays))
    if missing:
        raise invalid(f"inputs {missing} are missing")
    if len(binary):
        raise invalid(f"{len(binary)} bytes are left after the binary data of all inputs")
    rows = {len(a) for n, a in arrays.items() if model.inputs[n][1][:1] == (-1,)}
    if model.batches and len(rows) > 1:
        raise invalid(f"inputs have {sorted(rows)} rows; all must have as many")
    return arrays, request


def check_parameters(given: dict) -> dict:
    """The parameters of a request, an input or an output."""
    found = given.get("parameters") or {}
    if not isinstance(found, dict):
        raise invalid('"parameters" must be an object')
    return found


def read_json(text: bytes) -> dict:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid(f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise invalid("the body must be a JSON object")
    return found


def _read_input(given: dict, dtype: DType, expected: tuple, binary):
    name, shape, datatype = given["name"], given.get("shape"), given.get("datatype")
    if datatype != NAMES[dtype]:
        raise invalid(f"input {name!r} is {NAMES[dtype]}; datatype {datatype!r} was given")
    whole = isinstance(shape, list) and all(type(n) is int and 0 <= n < 1 << 31 for n in shape)
    if not whole or len(shape) != len(expected) or any(m not in (-1, n) for n, m in zip(shape, expected, strict=True)):
        raise invalid(f"input {name!r} has shape {list(expected)}, where -1 is any size; {shape} was given")
    size = check_parameters(given).get("binary_data_size")
    count = math.prod(shape)
    if size is not None:
        wanted = count * dtype.itemsize
        if size != wanted or len(binary) < wanted:
            raise invalid(f"input {name!r} has {wanted} bytes; binary_data_size is {size}, and {len(binary)} are there")
        return np.frombuffer(binary[:wanted], dtype.numpy).reshape(shape), binary[wanted:]
    try:
        flat = np.asarray(given.get("data"), dtype=None)
        if (
            dtype.is_floating
            and flat.dtype.kind == "O"
            and all(v is None or type(v) in (int, float) for v in flat.flat)
        ):
            flat = flat.astype(np.float64)  # null is NaN, as it is in answers
        if flat.dtype.kind not in "biuf" or flat.size != count:
            raise ValueError
        with np.errstate(over="ignore"):
            made = flat.astype(dtype.numpy)
        if not dtype.is_floating and flat.size and (flat.dtype.kind == "f" or np.any(made != flat)):
            raise ValueError
        return made.reshape(shape), binary
    except (ValueError, TypeError, OverflowError):
        kind = "numbers" if dtype.is_floating else f"values of {NAMES[dtype]}"
        raise invalid(f"data of input {name!r} must be {count} {kind}, flat or nested, for shape {shape}") from None


def _numbers(a: np.ndarray) -> str:
    """Elements as JSON, which has no word for those that are not finite: NaN is null, which NumPy reads as NaN; infinity is a
    number beyond what 64 bits hold, which parsers read as infinity."""
    short = a.dtype.itemsize == 2 and a.dtype.kind not in "iu"
    text = json.dumps((a.astype(np.float32) if short else a).reshape(-1).tolist())
    return text if a.dtype.kind in "biu" else text.replace("NaN", "null").replace("Infinity", "1e999")


def write_answer(model: TensorModel, made: dict[str, np.ndarray], request: dict) -> tuple[bytes, dict[str, str]]:
    """(body, headers)."""
    asked = request.get("outputs")
    wanted = list(made) if not asked else [o["name"] for o in asked]
    unknown = [n for n in wanted if n not in made]
    if unknown:
        raise invalid(f"outputs {unknown} do not exist; {model.name} gives {list(made)}")
    parameters = request.get("parameters") or {}
    binary = {n: bool(parameters.get("binary_data_output")) for n in wanted}
    for o in asked or ():
        binary[o["name"]] = bool((o.get("parameters") or {}).get("binary_data", binary[o["name"]]))
    outputs, tail = [], []
    for name in wanted:
        a = np.ascontiguousarray(made[name])
        entry: dict = {"name": name, "shape": list(a.shape), "datatype": NAMES[model.outputs[name][0]]}
        if binary[name]:
            entry["parameters"] = {"binary_data_size": a.nbytes}
            tail.append(a.tobytes())
        else:
            entry["data"] = []
        described = json.dumps(entry)
        outputs.append(described if binary[name] else f"{described[:-3]}{_numbers(a)}}}")
    answer = {"model_name": model.name, "model_version": model.version}
    if "id" in request:
        answer["id"] = request["id"]
    text = f'{json.dumps(answer)[:-1]}, "outputs": [{", ".join(outputs)}]}}'.encode()
    headers = {"content-type": "application/json"}
    if tail:
        headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(text))}
    return b"".join([text, *tail]), headers
