"""trigen.torch.gram, of tensors and of lists."""

from __future__ import annotations

from typing import List, Optional, Sequence, Union

import torch

from . import gram_lists, matrices


def gram(
    a: Union[torch.Tensor, Sequence[torch.Tensor]],
    b: Union[torch.Tensor, Sequence[torch.Tensor], None] = None,
    c: Union[torch.Tensor, Sequence[torch.Tensor], None] = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    gamma: float = 0.0,
    fill: str = "both",
    math: str = "default",
    dtype: Optional[torch.dtype] = None,
    out: Union[torch.Tensor, Sequence[torch.Tensor], None] = None,
) -> Union[torch.Tensor, List[torch.Tensor]]:
    """D = alpha A B^T + beta C + gamma I [..., m, m], where D is symmetric: half of the products of a matrix product.

    a: [..., m, k], float16, bfloat16, float32 or (in plain torch) float64; leading axes are a batch of independent matrices. It is read
    where it lies if one of its last two axes has stride 1 and the leading ones are one axis; anything else is copied first.
    b: like a; left out, it is a. Another b is a promise: A B^T is symmetric, as it is for two polynomials of one symmetric matrix. The
    promise is not checked, the triangle not computed is a copy of the other one.
    c: [..., m, m] of the result's dtype, symmetric: its elements of the triangle that is computed are read, none with beta=0.
    fill: "both" triangles are written (bitwise symmetric), or "lower" or "upper" alone: the rest of `out` is not touched, of a new tensor
    not set.
    math: of float32, as in triangular_conv1d. dtype: a's, or float32. out: [..., m, m] with rows contiguous; may be c, else it overlaps
    nothing (refused: ValueError).

    Lists: a list of matrices [m, k] of one shape gives a list; b, c and out are lists as long, then. Each tensor is read and written where
    it lies, by arrays of pointers in page-locked memory, all by one launch. Copied into batches, or out of one, are lists whose tensors
    differ in the distance from row to row or begin at addresses less aligned than a contiguous batch's rows, and while a graph is captured,
    those that are no parts of one tensor as far from each other as the first two.

    Products are exact and summed in float32 for 16-bit data, rounded once; the same bits in every run. Runs on the current stream of a's
    device, allocates nothing but the result and a workspace, does not synchronise, can be captured once the combination has run. It has
    no derivative: tensors that require one are refused while autograd records."""
    if alpha == 0:
        raise ValueError("alpha=0 leaves nothing to multiply; allowed: any other number")
    if c is None and beta not in (0, 1):
        raise ValueError(f"beta={beta} without c; allowed: c, which it multiplies, or no beta")
    if isinstance(a, (list, tuple)):
        return gram_lists.gram_of_lists(a, b, c, alpha, beta, gamma, fill, math, dtype, out)
    return matrices.gram_of_tensors(a, b, c, alpha, beta, gamma, fill, math, dtype, out)
