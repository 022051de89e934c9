"""Strings: NumPy arrays of Python's, on the host."""

from __future__ import annotations

import re

import numpy as np

from tandem.errors import UnsupportedError
from tandem.onnx.registry import onnx_op


@onnx_op("StringConcat", host=True)
def concat(node, a, b):
    return np.asarray(np.char.add(a.astype(str), b.astype(str))).astype(object)


@onnx_op("StringSplit", host=True)
def split(node, x):
    delimiter, limit = node.get("delimiter") or None, node.get("maxsplit")
    parts = [s.split(delimiter, -1 if limit is None else limit) for s in x.reshape(-1)]
    width = max((len(p) for p in parts), default=0)
    table = np.full((len(parts), width), "", object)
    for row, p in zip(table, parts, strict=True):
        row[: len(p)] = p
    counts = np.array([len(p) for p in parts], np.int64)
    return table.reshape((*x.shape, width)), counts.reshape(x.shape)


@onnx_op("RegexFullMatch", host=True)
def full_match(node, x):
    pattern = re.compile(node["pattern"])
    return np.array([pattern.fullmatch(s) is not None for s in x.reshape(-1)], bool).reshape(x.shape)


@onnx_op("StringNormalizer", host=True)
def normalize(node, x):
    action = node.get("case_change_action", "NONE")
    exact = bool(node.get("is_case_sensitive", 0))
    stop = node.get("stopwords", [])
    stop = set(stop) if exact else {s.lower() for s in stop}
    change = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}[action]
    rows = [[s for s in row if (s if exact else s.lower()) not in stop] for row in np.atleast_2d(x)]
    rows = [[change(s) for s in row] or [""] for row in rows]
    result = np.array(rows, object)
    return result if x.ndim == 2 else result[0]


@onnx_op("TfIdfVectorizer", host=True)
def tf_idf(node, x):
    counts, columns = node["ngram_counts"], node["ngram_indexes"]
    pool = node.get("pool_strings") or node.get("pool_int64s")
    weights = node.get("weights")
    grams: dict[tuple, int] = {}
    for n, begin in enumerate(counts, 1):
        end = counts[n] if n < len(counts) else len(pool)
        for k in range(begin, end, n):
            grams[tuple(pool[k : k + n])] = len(grams)
    low, high, skips = node["min_gram_length"], node["max_gram_length"], node["max_skip_count"]
    rows = np.atleast_2d(x)
    result = np.zeros((len(rows), max(columns) + 1), np.float32)
    for row, out in zip(rows.tolist(), result, strict=True):
        for n in range(low, high + 1):
            for skip in range(1 if n == 1 else skips + 1):
                for begin in range(len(row) - (n - 1) * (skip + 1)):
                    found = grams.get(tuple(row[begin : begin + (n - 1) * (skip + 1) + 1 : skip + 1]))
                    if found is not None:
                        out[columns[found]] += 1
    mode = node["mode"]
    scale = np.ones(result.shape[1], np.float32)
    if weights is not None:
        for position, weight in zip(columns, weights, strict=True):
            scale[position] = weight
    if mode not in ("TF", "IDF", "TFIDF"):
        raise UnsupportedError("onnx TfIdfVectorizer", f"the mode {mode!r} is not known")
    if mode == "IDF":
        result = (result > 0).astype(np.float32) * scale
    elif mode == "TFIDF":
        result = result * scale
    return result if x.ndim == 2 else result[0]
