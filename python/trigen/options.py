"""The types of options that take one of a few names, for type checkers."""

from typing import Literal, Union

Layout = Literal["btd", "bdt"]
Fill = Literal["lower", "upper"]
Activation = Literal["none", "gelu", "silu"]
Form = Literal["dense", "toeplitz", "band"]
Math = Literal["default", "simt", "tf32", "f16x3"]
Padding = Union[int, Literal["same", "causal"]]
KeepDense = Literal["never", "faster"]
Miss = Literal["first_choice", "generic", "error"]
Fallback = Literal["error", "plain"]
