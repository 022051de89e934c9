"""What the tests of this folder share."""


def both(*cases):
    """Each case in float64 and in float32."""
    return [
        tuple(a.astype(d) if a.dtype.kind == "f" else a for a in case) for case in cases for d in ("float64", "float32")
    ]
