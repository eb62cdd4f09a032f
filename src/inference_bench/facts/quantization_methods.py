"""How each quantisation method writes its settings, and the format they amount to.

In:   the quantization_config of a config.json
Out:  Quantization
Leaves out: where the settings stand in the file (see quantization)
Read next by: quantization; loaded only for a model that is quantised.

Source: quantization_config as written by Transformers 5.24, AutoAWQ, GPTQModel, bitsandbytes, compressed-tensors,
        TensorRT Model Optimizer and torchao
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from inference_bench.errors import ModelConfigError
from inference_bench.facts.fields import Fields, shown
from inference_bench.facts.formats import Beside, NumberFormat, grouped_format, number_format
from inference_bench.facts.module_patterns import ModulePatterns
from inference_bench.facts.quantization import Quantization


def _patterns(section: Fields, *keys: str) -> ModulePatterns:
    """Module patterns under the first key that is there."""
    key = section.first(*keys)
    return ModulePatterns(() if key is None else section.strings(key) or (), f"{section.what}: {key}")


def _group_size(section: Fields, key: str, default: int) -> int | None:
    """Values that share a scale; -1 is a whole row."""
    size = section.integer(key, default=default, minimum=-1)
    if size == 0:
        raise ModelConfigError(f"{section.what}: {key} is 0; a number above zero, or -1 for a row, is needed")
    return None if size == -1 else size


def _read_fp8(section: Fields) -> Quantization:
    sizes = section.integers("weight_block_size", minimum=1)
    static = section.string("activation_scheme") == "static"
    if sizes is None:
        fmt = number_format("fp8-tensor")
    elif len(sizes) == 2:
        rows, columns = sizes
        name = f"fp8-b{rows}" if rows == columns else f"fp8-b{rows}x{columns}"
        beside = Beside(tile_rows=rows, tile_columns=columns, tile_bytes=4)
        fmt = replace(
            number_format("fp8-b128"),
            name=name,
            beside=beside,
            note=f"8-bit float, one fp32 scale per {rows} x {columns}",
        )
    else:
        raise ModelConfigError(f"{section.what}: weight_block_size is {list(sizes)}; two numbers are needed")
    if static:  # one scale for the activations of each layer lies beside the weights
        fmt = replace(fmt, beside=replace(fmt.beside, matrix_bytes=fmt.beside.matrix_bytes + 4))
    kept = _patterns(section, "modules_to_not_convert", "ignored_layers")
    return Quantization("fp8", ((fmt, None),), kept)


def _read_fbgemm(section: Fields) -> Quantization:
    return Quantization(
        "fbgemm_fp8", ((number_format("fp8-channel"), None),), _patterns(section, "modules_to_not_convert")
    )


def _read_awq(section: Fields) -> Quantization:
    bits, size = (
        section.integer("bits", "w_bit", default=4),
        _group_size(section, section.first("q_group_size") or "group_size", 128),
    )
    zero = bits if section.boolean("zero_point", True) else 0
    fmt = grouped_format(
        _group_name("awq", bits, size), bits, size, zero_bits=zero, source=number_format("awq-g128").source
    )
    return Quantization("awq", ((fmt, None),), _patterns(section, "modules_to_not_convert"))


def _read_gptq(section: Fields) -> Quantization:
    """GPTQ keeps a packed zero point a group, also where it is symmetric, and a group index an input."""
    bits, size = section.integer("bits", default=4), _group_size(section, "group_size", 128)
    fmt = grouped_format(
        _group_name("gptq", bits, size),
        bits,
        size,
        zero_bits=bits,
        column_bytes=4,
        source=number_format("gptq-g128").source,
    )
    return Quantization(
        "gptq",
        ((fmt, None),),
        _patterns(section, "modules_to_not_convert"),
        converts_head=section.boolean("lm_head", False),
    )


def _group_name(method: str, bits: int, size: int | None) -> str:
    width = "" if bits == 4 else str(bits)
    return f"{method}{width}-" + ("row" if size is None else f"g{size}")


def _read_bitsandbytes(section: Fields) -> Quantization:
    if section.boolean("load_in_4bit", False):
        double = section.boolean("bnb_4bit_use_double_quant", False)
        fmt = number_format("nf4-dq" if double else "nf4")
        kind = section.string("bnb_4bit_quant_type") or "fp4"
        if kind not in ("nf4", "fp4"):
            raise ModelConfigError(f"{section.what}: bnb_4bit_quant_type {shown(kind)} is not known; known: nf4, fp4")
        fmt = fmt if kind == "nf4" else replace(fmt, name=fmt.name.replace("nf4", "fp4"))
    elif section.boolean("load_in_8bit", False):
        fmt = number_format("int8-bnb")
    else:
        raise ModelConfigError(f"{section.what}: neither load_in_4bit nor load_in_8bit is true")
    return Quantization(
        "bitsandbytes", ((fmt, None),), _patterns(section, "llm_int8_skip_modules", "modules_to_not_convert")
    )


def _read_mxfp4(section: Fields) -> Quantization:
    """gpt-oss: the routed experts, whatever else the list leaves out."""
    return Quantization(
        "mxfp4",
        ((number_format("mxfp4"), ModulePatterns(("mlp.experts",), "mxfp4")),),
        _patterns(section, "modules_to_not_convert"),
    )


def _read_eetq(section: Fields) -> Quantization:
    return Quantization("eetq", ((number_format("int8-channel"), None),), _patterns(section, "modules_to_not_convert"))


def _read_groups(section: Fields) -> Quantization:
    """compressed-tensors, and Model Optimizer where it writes groups: each with its targets."""
    groups = section.section("config_groups")
    if groups is None or not groups.values:
        raise ModelConfigError(f"{section.what}: config_groups is missing; it says how weights are stored")
    outer = section.string("format")
    rules: list[tuple[NumberFormat, ModulePatterns | None]] = []
    for key in groups.values:
        group = groups.section(key)
        weights = group.section("weights") if group is not None else None
        if group is None or weights is None:
            continue  # a group for activations or the cache alone
        targets = group.strings("targets") or ()
        every_linear = not targets or any(target in ("Linear", "LinearBase") for target in targets)
        fmt = _compressed_format(weights, group.section("input_activations"), group.string("format") or outer)
        rules.append((fmt, None if every_linear else ModulePatterns(targets, f"{group.what}: targets")))
    if not rules:
        raise ModelConfigError(f"{section.what}: no group of config_groups has weights")
    method = section.string("quant_method") or "compressed-tensors"
    return Quantization(method, tuple(rules), _patterns(section, "ignore", "exclude_modules"), converts_head=True)


def _compressed_format(weights: Fields, activations: Fields | None, packing: str | None) -> NumberFormat:
    bits, kind = weights.integer("num_bits", default=8), weights.string("type") or "int"
    size = _group_size(weights, "group_size", -1)
    strategy = weights.string("strategy") or ("group" if size is not None else "tensor")
    static = activations is not None and activations.values.get("dynamic") is False
    if kind == "float" and bits == 4:
        return _four_bit_float(weights, size, activations is not None, packing)
    if kind == "float" and bits == 8:
        return _eight_bit_float(weights, strategy, size, static)
    if kind != "int":
        raise ModelConfigError(f"{weights.what}: weights of {bits} bits of type {shown(kind)} are not known")
    if strategy in ("channel", "tensor"):
        size = None
    elif size is None:
        raise ModelConfigError(f"{weights.what}: strategy {shown(strategy)} needs a group_size")
    zero = 0 if weights.boolean("symmetric", True) else bits
    index = 4 if weights.values.get("actorder") in ("group", True) else 0
    name = f"int{bits}-" + ("channel" if size is None else f"g{size}") + ("-zp" if zero else "")
    fmt = grouped_format(name, bits, size, zero_bits=zero, column_bytes=index)
    if bits == 8 and packing != "pack-quantized":
        return replace(fmt, compute_formats=("int8", *fmt.compute_formats)) if activations is not None else fmt
    return replace(fmt, beside=replace(fmt.beside, matrix_bytes=16))  # the shape before packing, two 64-bit numbers


def _four_bit_float(weights: Fields, size: int | None, with_activations: bool, packing: str | None) -> NumberFormat:
    if size == 32 or (packing or "").startswith("mxfp4"):
        return number_format("mxfp4")
    if size not in (None, 16):
        raise ModelConfigError(f"{weights.what}: 4-bit floats in groups of {size} are not known; known: 16 and 32")
    return _nvfp4(with_activations)


def _nvfp4(with_activations: bool) -> NumberFormat:
    """A scale for the whole matrix, and one for its activations where those are in 4 bits too."""
    fmt = number_format("nvfp4")
    return replace(fmt, beside=Beside(matrix_bytes=8)) if with_activations else fmt


def _eight_bit_float(weights: Fields, strategy: str, size: int | None, static: bool) -> NumberFormat:
    """compressed-tensors stores these scales in the model's 16-bit type."""
    base = number_format("fp8-channel")
    input_scale = 2 if static else 0
    if strategy == "block":
        sizes = weights.integers("block_structure", minimum=1) or (128, 128)
        if len(sizes) != 2:
            raise ModelConfigError(f"{weights.what}: block_structure is {list(sizes)}; two numbers are needed")
        beside = Beside(tile_rows=sizes[0], tile_columns=sizes[1], tile_bytes=2, matrix_bytes=input_scale)
        return replace(base, name=f"fp8-b{sizes[0]}", beside=beside, note="8-bit float, one 16-bit scale a block")
    if strategy == "group" and size is not None:
        fmt = number_format("mxfp8")
        return fmt if size == 32 else replace(fmt, name=f"fp8-g{size}", block_values=size, block_bytes=size + 2)
    if strategy == "channel":
        beside = Beside(row_bytes=2, matrix_bytes=input_scale)
        return replace(base, beside=beside, note="8-bit float, one 16-bit scale a row")
    if strategy != "tensor":
        raise ModelConfigError(f"{weights.what}: strategy {shown(strategy)} is not known for 8-bit floats")
    return replace(
        base, name="fp8-tensor", beside=Beside(matrix_bytes=2 + input_scale), note="8-bit float, one 16-bit scale"
    )


def _read_modelopt(section: Fields) -> Quantization:
    """TensorRT Model Optimizer: the algorithm's name says the format; routers are left alone."""
    algorithm = (section.string("quant_algo") or "").upper()
    size = _group_size(section, "group_size", 128)
    formats: dict[str, Callable[[], NumberFormat]] = {
        "NVFP4": lambda: _nvfp4(True),
        "W4A8_NVFP4_FP8": lambda: _nvfp4(True),
        "W4A16_NVFP4": lambda: _nvfp4(False),
        "NVFP4_AWQ": lambda: _nvfp4(True),
        "MXFP4": lambda: number_format("mxfp4"),
        "MXFP8": lambda: number_format("mxfp8"),
        "W4A8_MXFP4_FP8": lambda: number_format("mxfp4"),
        "FP8": lambda: replace(number_format("fp8-tensor"), beside=Beside(matrix_bytes=8)),
        "FP8_PER_CHANNEL_PER_TOKEN": lambda: number_format("fp8-channel"),
        "FP8_PB_WO": lambda: number_format("fp8-b128"),
        "W4A16_AWQ": lambda: grouped_format(_group_name("awq", 4, size), 4, size),
        "W4A8_AWQ": lambda: grouped_format(_group_name("awq", 4, size), 4, size),
    }
    if algorithm not in formats and "config_groups" in section:
        return _read_groups(section)
    if algorithm not in formats:
        raise ModelConfigError(
            f"{section.what}: quant_algo {shown(algorithm)} is not known; known: {', '.join(formats)}; "
            "name the format of the weights to go on"
        )
    kept = _patterns(section, "ignore", "exclude_modules")
    return Quantization("modelopt", ((formats[algorithm](), None),), kept, converts_head=True)


def _read_mlx(section: Fields) -> Quantization:
    """MLX: groups with a scale and an offset in 16 bits, embedding and head included; modules may differ by name."""

    def fmt(fields: Fields) -> NumberFormat:
        bits, size = fields.integer("bits", default=4), fields.integer("group_size", default=64)
        mode = fields.string("mode") or "affine"
        if mode == "mxfp4":
            return number_format("mxfp4")
        if mode != "affine":
            raise ModelConfigError(f"{section.what}: mode {shown(mode)} is not known; known: affine, mxfp4")
        return grouped_format(f"int{bits}-g{size}-zp", bits, size, zero_bits=16)

    apart: list[tuple[NumberFormat, ModulePatterns | None]] = []
    kept: list[str] = []
    for key, value in section.values.items():
        if value is False:
            kept.append(key)
        elif isinstance(value, Mapping):
            apart.append((fmt(Fields(value, f"{section.what}: {key}")), ModulePatterns((key,), section.what)))
    return Quantization(
        "mlx",
        (*apart, (fmt(section), None)),
        ModulePatterns(kept, section.what),
        converts_head=True,
        converts_embedding=True,
    )


_TORCHAO: Final = re.compile(r"(int4|int8|float8|fp8)_?.*")


def _read_torchao(section: Fields) -> Quantization:
    value = section.values.get("quant_type")
    settings: Mapping[str, Any] = {}
    if isinstance(value, Mapping):
        default = value.get("default")
        kind = default.get("_type") if isinstance(default, Mapping) else default
        data = default.get("_data") if isinstance(default, Mapping) else None
        settings = data if isinstance(data, Mapping) else {}
    else:
        kind, arguments = value, section.values.get("quant_type_kwargs")
        settings = arguments if isinstance(arguments, Mapping) else {}
    match = _TORCHAO.match(kind.lower()) if isinstance(kind, str) else None
    if match is None:
        raise ModelConfigError(
            f"{section.what}: quant_type {shown(kind)} is not known; known: int4, int8 and float8 ones"
        )
    fmt = _torchao_format(match[1], Fields(settings, section.what))
    kept = _patterns(section, "modules_to_not_convert")
    return Quantization(
        "torchao", ((fmt, None),), kept, notes=("torchao: scales counted in the 16-bit type, packing padding is not",)
    )


def _torchao_format(kind: str, settings: Fields) -> NumberFormat:
    if kind == "int4":
        size = _group_size(settings, "group_size", 128)
        return grouped_format(f"int4-{'row' if size is None else f'g{size}'}-zp", 4, size, zero_bits=16)
    return number_format("int8-channel" if kind == "int8" else "fp8-channel")


READERS: Final[Mapping[str, Callable[[Fields], Quantization]]] = {
    "fp8": _read_fp8,
    "fbgemm-fp8": _read_fbgemm,
    "awq": _read_awq,
    "gptq": _read_gptq,
    "auto-round": _read_gptq,
    "bitsandbytes": _read_bitsandbytes,
    "mxfp4": _read_mxfp4,
    "compressed-tensors": _read_groups,
    "modelopt": _read_modelopt,
    "modelopt-fp4": _read_modelopt,
    "nvfp4": _read_modelopt,
    "torchao": _read_torchao,
    "eetq": _read_eetq,
    "mlx": _read_mlx,
}
