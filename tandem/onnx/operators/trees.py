"""Classical models of the domain ai.onnx.ml."""

from __future__ import annotations

import numpy as np

import tandem.ops as ops
from tandem import dtypes
from tandem.onnx.registry import ML, onnx_op


@onnx_op("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(node, x, index):
    return ops.index_select(x, x.ndim - 1, index.reshape((-1,)).to(dtypes.int64))


@onnx_op("Binarizer", domain=ML)
def binarizer(node, x):
    return (x > node.get("threshold", 0.0)).to(x.dtype)


@onnx_op("LabelEncoder", domain=ML, host=True)
def label_encoder(node, x):
    kinds = {"strings": object, "int64s": np.int64, "floats": np.float32, "tensor": None}

    def table(prefix):
        for kind, dtype in kinds.items():
            values = node.get(f"{prefix}_{kind}")
            if values is not None:
                return np.asarray(values, dtype), kind
        return None, None

    keys, _ = table("keys")
    values, kind = table("values")
    defaults = {"strings": "_Unused", "int64s": -1, "floats": -0.0}
    default = node.get(f"default_{kind[:-1] if kind != 'tensor' else 'tensor'}", defaults.get(kind))
    default = np.asarray(default).reshape(-1)[0] if kind == "tensor" and default is not None else default
    known = {("nan" if k != k else k): v for k, v in zip(keys.reshape(-1).tolist(), values.reshape(-1), strict=True)}
    found = [known.get("nan" if k != k else k, default) for k in x.reshape(-1).tolist()]
    return np.array(found, values.dtype).reshape(x.shape)


@onnx_op("TreeEnsemble", domain=ML, host=True)
def tree_ensemble(node, x):
    """Sums, means, least or largest weights of the leaves that each row of x reaches."""
    modes = node["nodes_modes"]
    splits = np.asarray(node["nodes_splits"])
    features, yes, no = node["nodes_featureids"], node["nodes_trueleafs"], node["nodes_falseleafs"]
    yes_ids, no_ids = node["nodes_truenodeids"], node["nodes_falsenodeids"]
    missing = node.get("nodes_missing_value_tracks_true", [0] * len(modes))
    members = _member_sets(node, modes)
    targets, weights = node["leaf_targetids"], np.asarray(node["leaf_weights"])
    count, how = node["n_targets"], node.get("aggregate_function", 1)
    compare = {0: np.less_equal, 1: np.less, 2: np.greater_equal, 3: np.greater, 4: np.equal, 5: np.not_equal}
    result = np.zeros((len(x), count), x.dtype)
    for row, out in zip(x, result, strict=True):
        reached: list[list] = [[] for _ in range(count)]
        for root in node["tree_roots"]:
            at, leaf = root, False
            while not leaf:
                value, mode = row[features[at]], int(modes[at])
                truth = value in members[at] if mode == 6 else bool(compare[mode](value, splits[at]))
                truth = truth or (bool(missing[at]) and np.isnan(value))
                leaf, at = (yes[at], yes_ids[at]) if truth else (no[at], no_ids[at])
            reached[targets[at]].append(weights[at])
        for k, values in enumerate(reached):
            if values:
                out[k] = {0: np.mean, 1: np.sum, 2: np.min, 3: np.max}[how](values)
    return _post_transform(result, node.get("post_transform", 0))


def _member_sets(node, modes) -> dict[int, set]:
    """The values of each node that asks for membership; sets are separated by NaN."""
    values = node.get("membership_values")
    if values is None:
        return {}
    sets, current = [], set()
    for v in np.asarray(values).tolist():
        if v != v:
            sets.append(current)
            current = set()
        else:
            current.add(v)
    at = [i for i, m in enumerate(modes) if int(m) == 6]
    return dict(zip(at, sets, strict=False))


def _post_transform(x, how: int):
    if how == 1:  # softmax
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)
    if how == 2:  # logistic
        return 1 / (1 + np.exp(-x))
    if how == 3:  # softmax of what is not zero
        e = np.where(x != 0, np.exp(x - x.max(-1, keepdims=True)), 0)
        return e / e.sum(-1, keepdims=True)
    return x
