"""How fast does one NVIDIA card multiply in fp8?

In:   an open card, the side of the matrices, the number of columns
Out:  ProductRow, or the reason why this card or this PyTorch does not multiply in fp8
Leaves out: block scales (MXFP8, NVFP4), whose products need kernels that PyTorch does not carry everywhere
Read next by: gpu_probe.

Verified on: nothing yet; held to a stand-in for PyTorch.
"""

from __future__ import annotations

from typing import Any, Final

from inference_bench.measure.ceilings import ProductRow, product_row
from inference_bench.measure.timing import Repeats, Stopwatch, time_calls

FP8: Final = "fp8"
_BYTES: Final = 1
_FIRST_CAPABILITY: Final = (8, 9)  # Ada and Hopper have the units; Ampere has none


def measure_fp8_product(
    torch: Any, device: str, capability: tuple[int, int], size: int, batch: int, repeats: Repeats, stopwatch: Stopwatch
) -> ProductRow | str:
    """The product of fp8 columns [B, n] and the transpose of an fp8 weight [n, n], one scale each, bf16 out.

    Where:    values are e4m3; a text is the reason why there is no row
    Source:   PyTorch, torch._scaled_mm, the product behind its fp8 linear layers
    """
    if capability < _FIRST_CAPABILITY:
        return "the card has no fp8 units (compute capability {}.{}; 8.9 is the first)".format(*capability)
    if not (hasattr(torch, "_scaled_mm") and hasattr(torch, "float8_e4m3fn")):
        return f"PyTorch {torch.__version__} has no fp8 product"
    columns, weight = (_random(torch, device, *shape) for shape in ((batch, size), (size, size)))
    scale = torch.ones((), dtype=torch.float32, device=device)

    def call() -> None:
        torch._scaled_mm(columns, weight.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)

    try:
        return product_row(size, batch, _BYTES, time_calls(call, repeats, stopwatch))
    except RuntimeError as error:
        if isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        return f"PyTorch {torch.__version__} refused an fp8 product: {str(error).splitlines()[0][:160]}"


def _random(torch: Any, device: str, *shape: int) -> Any:
    """Values in [-1, 1): zeros would draw less power than real weights and run faster."""
    return torch.empty(shape, dtype=torch.bfloat16, device=device).uniform_(-1.0, 1.0).to(torch.float8_e4m3fn)
