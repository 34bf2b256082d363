"""The operation as its definition says it, in NumPy loops over float64: independent of the package."""

import numpy as np


def in_triangle(t, s, fill, diag):
    return s <= t + diag if fill == "lower" else s >= t + diag


def split(x, heads, layout):
    """[B, H, n, D] of float64."""
    x = np.asarray(x, np.float64)
    if layout == "btd":
        b, n, hd = x.shape
        return x.reshape(b, n, heads, hd // heads).transpose(0, 2, 1, 3)
    b, hd, n = x.shape
    return x.reshape(b, heads, hd // heads, n).transpose(0, 1, 3, 2)


def join(y, layout):
    b, h, n, d = y.shape
    return (
        y.transpose(0, 2, 1, 3).reshape(b, n, h * d)
        if layout == "btd"
        else y.transpose(0, 1, 3, 2).reshape(b, h * d, n)
    )


def dense_operator(weight, features, pad, fill, diag, n):
    """[H, n*D, n*D]: the whole linear map of one head as a matrix, entry by entry."""
    heads, _, _, taps = weight.shape
    matrix = np.zeros((heads, n, features, n, features))
    for h in range(heads):
        for t in range(n):
            for s in range(n):
                if not in_triangle(t, s, fill, diag):
                    continue
                for j in range(taps):
                    for d in range(features):
                        source = d + j - pad
                        if 0 <= source < features:
                            matrix[h, t, d, s, source] += weight[h, t, s, j]
    return matrix.reshape(heads, n * features, n * features)


def weight4(weight):
    weight = np.asarray(weight, np.float64)
    if weight.ndim == 2:
        weight = weight[..., None]
    return weight[None] if weight.ndim == 3 else weight


def forward(x, weight, bias=None, *, pad=0, layout="btd", fill="lower", diag=0):
    """The sum and the bias, before any epilogue."""
    weight = weight4(weight)
    heads = weight.shape[0]
    x = split(x, heads, layout)
    b, h, n, d = x.shape
    matrix = dense_operator(weight, d, pad, fill, diag, n)
    y = np.einsum("hij,bhj->bhi", matrix, x.reshape(b, h, n * d)).reshape(b, h, n, d)
    if bias is not None:
        y = y + np.asarray(bias, np.float64).reshape(heads, -1)[:, :n, None]
    return join(y, layout)


def grad_input(dy, weight, *, pad=0, layout="btd", fill="lower", diag=0):
    weight = weight4(weight)
    dy = split(dy, weight.shape[0], layout)
    b, h, n, d = dy.shape
    matrix = dense_operator(weight, d, pad, fill, diag, n)
    return join(np.einsum("hij,bhi->bhj", matrix, dy.reshape(b, h, n * d)).reshape(b, h, n, d), layout)


def grad_weight(dy, x, heads, taps, *, pad=0, layout="btd", fill="lower", diag=0):
    """([H, n, n, K], [H, n])"""
    dy, x = split(dy, heads, layout), split(x, heads, layout)
    b, h, n, d = x.shape
    dw = np.zeros((h, n, n, taps))
    for j in range(taps):
        shifted = np.zeros_like(x)
        for feature in range(d):
            if 0 <= feature + j - pad < d:
                shifted[..., feature] = x[..., feature + j - pad]
        dw[..., j] = np.einsum("bhtd,bhsd->hts", dy, shifted)
    t, s = np.indices((n, n))
    return dw * in_triangle(t, s, fill, diag)[None, :, :, None], dy.sum((0, 3))
