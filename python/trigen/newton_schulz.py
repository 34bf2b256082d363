"""Newton-Schulz iterations, which bring the singular values of matrices near 1, for any library of arrays.

An iteration is X <- (a I + b A + c A A) X with A = X X^T. All products but the last are symmetric: gram computes half of them. In Gram form
(Dao AI Lab, "Gram Newton-Schulz", 2026) the iterations stay in the m x m matrices, R <- Z R Z and Q <- Q Z with Z = a I + b R + c R R, and X is
multiplied once, by Q. In 16 bits R loses what is small in X: every RESTART steps X is multiplied and R computed from it anew.

Sums are in float32, matrices between products in float16 whatever the data's type; errors: docs/gram.md, Numerics.
"""

from __future__ import annotations

import operator
from typing import List, Tuple

Triple = Tuple[float, float, float]

JORDAN: Triple = (3.4445, -4.7750, 2.0315)
"""Coefficients of Keller Jordan's Muon, for every step."""

POLAR_EXPRESS: Tuple[Triple, ...] = (
    *(
        (a / 1.01, b / 1.01**3, c / 1.01**5)
        for a, b, c in (
            (8.28721201814563, -23.595886519098837, 17.300387312530933),
            (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
            (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
            (3.3184196573706015, -2.488488024314874, 0.51004894012372),
            (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
            (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
            (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
        )
    ),
    (1.875, -1.25, 0.375),
)
"""Coefficients a step of "The Polar Express" (Amsel, Persson, Musco, Gower; arXiv 2505.16932, Algorithm 1), with its safety factor of 1.01
for all but the last."""


FORMS = ("auto", "classic", "gram", "one_launch")
# What newton_schulz, the op of all steps in one launch, takes.
_MOST_ROWS, _MOST_STEPS = 256, 64  # rows on Hopper; 128 on the others


def _check_form(form: str) -> None:
    if form not in FORMS:
        raise ValueError(f"form={form!r} is not known; allowed: {', '.join(FORMS)}")


def may_be_one_launch(m: int, steps: int, form: str, double: bool) -> bool:
    """Whether matrices of m rows, the shorter side, are one launch in a batch of some size, on a GPU that has it (Ampere and later; Hopper from 129 rows)."""
    _check_form(form)
    fits = m <= _MOST_ROWS and steps <= _MOST_STEPS and not double
    if form == "one_launch" and not fits:
        raise ValueError(
            f"form='one_launch' with {m} rows or columns, {steps} steps{' in float64' if double else ''}; allowed: at most 128 rows or "
            f"columns, on Hopper {_MOST_ROWS}, {_MOST_STEPS} steps, float16, bfloat16 and float32; form='auto' makes products one by one of others"
        )
    return fits and form in ("auto", "one_launch")


def suits_one_launch(n: int, m: int, k: int, clusters: bool, hopper: bool) -> bool:
    """Whether n matrices of m x k, m <= k, that may be one launch go to newton_schulz in place of some 15 launches of gram and matmul: a matrix
    has one SM there, up to eight where the GPU has clusters of thread blocks (Hopper and later). newton_schulz.hpp has the same rule.
    One H200, 2026-11-28, f32, us: 1 x 128 x 1024 58 for 74, 4 x 128 x 4096 87 for 95, 16 x 128 x 8192 250 for 275, 8 x 128 x 11008 193 for
    207, but 1 x 128 x 8192 143 for 86, 1 x 64 x 16384 102 for 86. Without clusters, on an H100: 64 x 128 x 1024 180 for 339, 128 x 128 x 4096
    581 for 1295, but 16 x 128 x 4096 440 for 209. Of 129 to 256 rows, by wgmma, which Hopper alone has, on an H100: 32 x 256 x 256 95 for
    123, 32 x 160 x 512 70 for 138, 64 x 192 x 768 96 for 224, 128 x 256 x 1024 291 for 731, but 16 x 256 x 1024 135 for 134."""
    if m > 128:
        return hopper and k <= 4 * m and (n >= 64 or (n >= 32 and m * k <= 160 * 512))
    if clusters:
        return n >= 8 or k <= 4096
    return n >= 64 or k <= (4096 if m <= 64 else 1024)


def numbers_of(triples, eps: float) -> List[float]:
    """newton_schulz's w. An eps below 0, which leaves X undivided there, is 0, as it is where the products are made one by one."""
    return [number for triple in triples for number in triple] + [max(float(eps), 0.0)]


RESTART = 3
# Gram form costs 3 k + 7 m products of m x m where the classic one costs 7.5 k + 2.5 m (five steps, halves counted as halves).
_GRAM_FROM = 1.25  # k / m


def triples_of(coefficients, steps) -> List[Triple]:
    if steps < 1:
        raise ValueError(f"steps={steps}; allowed: 1 or more")
    listed = list(coefficients)
    if listed and not hasattr(listed[0], "__len__"):
        listed = [tuple(listed)]
    if not listed or any(len(triple) != 3 for triple in listed):
        raise ValueError(f"coefficients={coefficients!r}; allowed: a triple (a, b, c), or a list of such")
    if any(triple[2] == 0 for triple in listed):
        raise ValueError(f"coefficients={coefficients!r}; allowed: c other than 0, which multiplies the product A A")
    return [tuple(float(value) for value in listed[min(step, len(listed) - 1)]) for step in range(steps)]


def iterate(x, triples: List[Triple], form: str, gram, times=operator.matmul):
    """The iterations from x [n, m, k], m <= k, whose singular values are at most 1. gram: the library's function of this name.
    times(q, x): Q X, where Q [n, m, m] is symmetric."""
    _check_form(form)
    m, k = x.shape[-2:]
    in_gram_form = form == "gram" or (form != "classic" and k >= _GRAM_FROM * m)
    return (_gram_form if in_gram_form else _classic)(x, triples, gram, times)


def _classic(x, triples, gram, times):
    for a, b, c in triples:
        square = gram(x)
        x = times(gram(square, c=square, alpha=c, beta=b, gamma=a), x)
    return x


def _gram_form(x, triples, gram, times):
    r = gram(x)
    q = None
    for step, (a, b, c) in enumerate(triples):
        if step > 0 and step % RESTART == 0:
            x, q = times(q, x), None
            r = gram(x)
        z = gram(r, c=r, alpha=c, beta=b, gamma=a)
        q = z if q is None else gram(q, z)
        if step + 1 < len(triples) and (step + 1) % RESTART != 0:
            r = gram(gram(r, z), z)
    return times(q, x)
