"""Orthogonalisation of matrices by Newton-Schulz iterations, and Muon, the optimizer that takes its steps from it.

An iteration is X <- (a I + b A + c A A) X with A = X X^T. All products but the last are symmetric: gram computes half of them. In Gram form
(Dao AI Lab, "Gram Newton-Schulz", 2026) the iterations stay in the m x m matrices, R <- Z R Z and Q <- Q Z with Z = a I + b R + c R R, and X is
multiplied once, by Q. In 16 bits R loses what is small in X: every RESTART steps X is multiplied and R computed from it anew.

Sums are in float32, matrices between products in float16 whatever the data's type: normalised, all of them are within its range, and it keeps
three bits more than bfloat16. Relative errors against the same iterations in double precision, five steps of JORDAN / POLAR_EXPRESS:

                                           torch.optim.Muon's bfloat16   classic            gram
    96 x 384, Gaussian                     0.012 / 0.017                 0.003 / 0.004      0.003 / 0.005
    80 x 160, singular values 1 to 1e-5    0.129 / 0.198                 0.014 / 0.022      0.013 / 0.042
    80 x 80, singular values 1 to 1e-2     0.018 / 0.017                 0.002 / 0.003      0.005 / 0.015
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Optional, Sequence, Tuple, Union

import torch

from .matrices import gram

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

RESTART = 3
# Gram form costs 3 k + 7 m products of m x m where the classic one costs 7.5 k + 2.5 m (five steps, halves counted as halves).
_GRAM_FROM = 1.25  # k / m


def orthogonalize(
    matrices: Union[torch.Tensor, Sequence[torch.Tensor]],
    *,
    steps: int = 5,
    coefficients: Union[Triple, Sequence[Triple]] = JORDAN,
    eps: float = 1e-7,
    form: str = "auto",
    out: Optional[Sequence[torch.Tensor]] = None,
):
    """Each matrix with its singular values brought near 1: `steps` Newton-Schulz iterations from X / max(|X|, eps), Frobenius norm.

    matrices: one tensor [..., m, k], or a list of them, of any shapes, floating dtypes and one device; leading axes are a batch. Matrices of
    equal sides (up to transposition) are computed together, whatever tensors they come from. Not changed.
    coefficients: (a, b, c) for every step, or one triple a step, of which the last is repeated.
    form: "classic", "gram", or "auto": gram where the longer side is 1.25 times the shorter one.
    out: tensors of the same shapes to write to; may be `matrices`.

    Returns a new tensor (or `out`) for each, of its shape and dtype: one for one, else a list. Runs on the current stream, does not
    synchronise, can be captured once these shapes have run. No derivative."""
    single = isinstance(matrices, torch.Tensor)
    given: List[torch.Tensor] = [matrices] if single else list(matrices)  # type: ignore[list-item]
    results = [torch.empty_like(one) for one in given] if out is None else [out] if single else list(out)
    triples = _triples(coefficients, steps)
    if form not in ("auto", "classic", "gram"):
        raise ValueError(f"form={form!r} is not known; allowed: auto, classic, gram")
    _check(given, results)
    with torch.no_grad():
        for (m, k), members in _groups(given, results).items():
            _group(m, k, members, triples, eps, form)
    return results[0] if single else results


def _triples(coefficients, steps) -> List[Triple]:
    if steps < 1:
        raise ValueError(f"steps={steps}; allowed: 1 or more")
    listed = list(coefficients)
    if listed and not hasattr(listed[0], "__len__"):
        listed = [tuple(listed)]
    if not listed or any(len(triple) != 3 for triple in listed):
        raise ValueError(f"coefficients={coefficients!r}; allowed: a triple (a, b, c), or a list of such")
    return [tuple(float(value) for value in listed[min(step, len(listed) - 1)]) for step in range(steps)]


def _check(given, results) -> None:
    if len(given) != len(results):
        raise ValueError(f"out has {len(results)} tensors for {len(given)} matrices; allowed: one each")
    for index, (one, result) in enumerate(zip(given, results)):
        if type(one).__name__ == "DTensor":
            raise ValueError(f"matrix {index} is a DTensor, a part of a matrix on each rank; gather it first (full_tensor())")
        if one.dim() < 2 or not one.is_floating_point():
            raise ValueError(f"matrix {index} is {one.dtype} {list(one.shape)}; allowed: floating [..., m, k]")
        if result.shape != one.shape or result.device != one.device:
            raise ValueError(f"out {index} is {list(result.shape)}; allowed: its matrix's {list(one.shape)} on {one.device}")
        if one.device != given[0].device:
            raise ValueError(f"matrix {index} is on {one.device}, the first one on {given[0].device}; allowed: one device a call")


def _groups(given, results) -> Dict[Tuple[int, int], List[Tuple[torch.Tensor, torch.Tensor]]]:
    """{(shorter, longer side): [(matrix, its result)]}, wide views of two axes."""
    groups: Dict[Tuple[int, int], List[Tuple[torch.Tensor, torch.Tensor]]] = {}
    for one, result in zip(given, results):
        if one.numel() == 0:
            continue
        if one.shape[-2] > one.shape[-1]:
            one, result = one.mT, result.mT
        members = groups.setdefault((one.shape[-2], one.shape[-1]), [])
        if one.dim() == 2:
            members.append((one, result))
        else:
            leading = one.shape[:-2]
            for index in torch.cartesian_prod(*(torch.arange(size) for size in leading)).reshape(-1, len(leading)).tolist():
                members.append((one[tuple(index)], result[tuple(index)]))
    return groups


def _group(m, k, members, triples, eps, form) -> None:
    sources, results = [one for one, _ in members], [one for _, one in members]
    double = sources[0].dtype is torch.float64
    x = torch.empty(len(members), m, k, dtype=torch.float64 if double else torch.float16, device=sources[0].device)
    if sources[0].element_size() < 4:  # a quotient of 16 bits would be rounded twice
        sources = [one.float() for one in sources]
    norms = torch.stack(torch._foreach_norm(sources, dtype=torch.float64 if double else torch.float32)).clamp_(min=eps)
    torch._foreach_copy_(list(x.unbind()), torch._foreach_div(sources, list(norms.unbind())))
    in_gram_form = form == "gram" or (form == "auto" and k >= _GRAM_FROM * m)
    x = (_gram_form if in_gram_form else _classic)(x, triples)
    torch._foreach_copy_(results, list(x.unbind()))


def _classic(x, triples):
    for a, b, c in triples:
        square = gram(x)
        x = gram(square, c=square, alpha=c, beta=b, gamma=a) @ x
    return x


def _gram_form(x, triples):
    r = gram(x)
    q = None
    for step, (a, b, c) in enumerate(triples):
        if step > 0 and step % RESTART == 0:
            x, q = q @ x, None
            r = gram(x)
        z = gram(r, c=r, alpha=c, beta=b, gamma=a)
        q = z if q is None else gram(q, z)
        if step + 1 < len(triples) and (step + 1) % RESTART != 0:
            r = gram(gram(r, z), z)
    return q @ x


class Muon(torch.optim.Muon if hasattr(torch.optim, "Muon") else object):  # type: ignore[misc]
    """torch.optim.Muon (PyTorch 2.9 and later) with its arguments, state and results; all matrices of a parameter group are
    orthogonalised together, by orthogonalize. ns_coefficients may be a list of triples (POLAR_EXPRESS), too."""

    def __init__(self, params: Iterable, *args, **kwargs):
        if not hasattr(torch.optim, "Muon"):
            raise RuntimeError(
                f"PyTorch {torch.__version__} has no torch.optim.Muon; allowed: 2.9 and later; call orthogonalize in your own step"
            )
        super().__init__(params, *args, **kwargs)

    @torch.no_grad()
    def step(self, closure=None):
        """One optimization step; the closure's loss, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params: List[torch.Tensor] = []
            grads: List[torch.Tensor] = []
            momenta: List[torch.Tensor] = []
            self._init_group(group, params, grads, momenta)
            if params:
                self._step(group, params, grads, momenta)
        return loss

    @staticmethod
    def _step(group, params, grads, momenta) -> None:
        momentum, lr = group["momentum"], float(group["lr"])
        torch._foreach_lerp_(momenta, grads, 1 - momentum)
        updates = torch._foreach_lerp(grads, momenta, momentum) if group["nesterov"] else momenta
        updates = orthogonalize(
            updates, steps=group["ns_steps"], coefficients=group["ns_coefficients"], eps=group["eps"]
        )
        torch._foreach_mul_(params, 1 - lr * group["weight_decay"])
        torch._foreach_mul_(updates, [-_adjusted(lr, group["adjust_lr_fn"], one.shape) for one in params])
        torch._foreach_add_(params, updates)


def _adjusted(lr, rule, shape) -> float:
    """The learning rate of a matrix, as torch.optim.Muon has it."""
    rows, columns = shape
    if rule == "match_rms_adamw":
        return lr * 0.2 * max(rows, columns) ** 0.5
    return lr * max(1, rows / columns) ** 0.5
