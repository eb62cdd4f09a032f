"""Models whose shape was written down from what is published count as many parameters as are published.

The totals are those of the weight files or, where rounded, of the model's report; the language model alone where the
class here holds no tower. The files of Gemma 3n and of the small Gemma 4 also hold key and value projections of layers
that read another layer's cache; nothing uses them, and they are taken off. A wrong width, depth or tied head moves a
count by more than the half per cent allowed.
"""

from __future__ import annotations

import pytest

from inference_bench.accounting.params import count_params
from inference_bench.facts.load import known_model, known_models

PUBLISHED = {
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-30b": 32_528_943_616,
    "Llama-2-13b-hf": 13_015_864_320,
    "CodeLlama-13b-hf": 13_016_028_160,
    "CodeLlama-34b-hf": 33_743_970_304,
    "Meta-Llama-3-8B": 8_030_261_248,
    "Meta-Llama-3-70B": 70_553_706_496,
    "Llama-3.2-3B": 3_212_749_824,
    "open_llama_3b": 3_426_473_600,
    "TinyLlama-1.1B-Chat-v1.0": 1_100_048_384,
    "Falcon3-7B-Base": 7_455_550_464,
    "gemma-3-4b-it": 4_300_079_472,
    "gemma-3-12b-it": 12_187_325_040,
    "granite-3.1-8b-instruct": 8_170_848_256,
    "internlm2-1_8b": 1_889_110_016,
    "MiniCPM3-4B": 4_074_000_000,
    "chatglm3-6b": 6_243_584_000,
    "Mistral-Small-24B-Instruct-2501": 23_572_403_200,
    "Phi-3-mini-4k-instruct": 3_821_079_552,
    "Phi-3.5-mini-instruct": 3_821_079_552,
    "Phi-4-mini-instruct": 3_836_021_760,
    "Qwen2-0.5B": 494_032_768,
    "Qwen2-7B": 7_615_616_512,
    "Qwen2-72B": 72_706_203_648,
    "Qwen2.5-1.5B": 1_543_714_304,
    "Qwen2.5-14B": 14_770_033_664,
    "Qwen2.5-32B": 32_763_876_352,
    "Qwen3-1.7B": 1_720_574_976,
    "Qwen3-4B": 4_022_468_096,
    "Qwen3-Coder-30B-A3B-Instruct": 30_532_122_624,
    "llama-65b": 65_285_660_672,
    "CodeLlama-7b-hf": 6_738_546_688,
    "CodeLlama-70b-hf": 68_976_910_336,
    "Yi-6B": 6_061_035_520,
    "Yi-9B": 8_829_407_232,
    "SOLAR-10.7B-v1.0": 10_731_524_096,
    "deepseek-llm-7b-base": 6_910_365_696,
    "deepseek-llm-67b-base": 67_424_755_712,
    "deepseek-coder-1.3b-base": 1_346_471_936,
    "deepseek-coder-6.7b-base": 6_740_512_768,
    "deepseek-coder-33b-base": 33_342_991_360,
    "Falcon3-1B-Base": 1_669_408_768,
    "Falcon3-3B-Base": 3_227_655_168,
    "Falcon3-10B-Base": 10_305_653_760,
    "SmolLM2-1.7B": 1_711_376_384,
    "ALLaM-7B-Instruct-preview": 7_000_559_616,
    "SmolLM3-3B": 3_075_098_624,
    "Mistral-7B-Instruct-v0.2": 7_241_732_096,
    "Mistral-7B-v0.3": 7_248_023_552,
    "Ministral-8B-Instruct-2410": 8_019_808_256,
    "Codestral-22B-v0.1": 22_247_282_688,
    "Mistral-Large-Instruct-2407": 122_610_069_504,
    "Devstral-Small-2505": 23_572_403_200,
    "Mistral-Small-3.1-24B-Instruct-2503": 24_011_361_280,
    "Devstral-Small-2-24B-Instruct-2512": 24_011_361_280,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-72B": 72_706_203_648,
    "Qwen2-1.5B": 1_543_714_304,
    "Qwen1.5-0.5B": 463_987_712,
    "Qwen1.5-1.8B": 1_836_828_672,
    "Qwen1.5-4B": 3_950_369_280,
    "Qwen1.5-7B": 7_721_324_544,
    "Qwen1.5-14B": 14_167_290_880,
    "Qwen1.5-32B": 32_512_218_112,
    "Qwen1.5-72B": 72_287_920_128,
    "Qwen1.5-110B": 111_209_914_368,
    "Qwen-7B": 7_721_324_544,
    "Qwen-14B": 14_167_290_880,
    "Qwen2-57B-A14B": 57_409_088_512,
    "Qwen2.5-VL-3B-Instruct": 3_754_622_976,
    "Qwen2.5-VL-7B-Instruct": 8_292_166_656,
    "Qwen3.5-9B": 9_653_104_368 - 456_010_480 - 243_290_624,  # without the vision tower and token prediction
    "Qwen3.5-397B-A17B": 397_000_000_000,
    "DeepSeek-V2": 235_741_434_880,
    "Kimi-K2-Thinking": 1_026_400_000_000,
    "Kimi-K2.5": 1_026_400_000_000,
    "GLM-4.5-Air": 106_850_000_000,
    "GLM-4.6": 352_800_000_000,
    "GLM-4.7-Flash": 29_940_000_000,
    "GLM-4-32B-0414": 32_600_000_000,
    "glm-4-9b": 9_399_951_360,
    "chatglm2-6b": 6_243_584_000,
    "gemma-7b": 8_537_680_896,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-270m": 268_098_176,
    "gemma-4-31B": 31_273_086_512,
    "gemma-3n-E2B-it": 4_435_000_000,
    "gemma-3n-E4B-it": 6_835_500_000,
    "Phi-3-medium-4k-instruct": 13_960_238_080,
    "Phi-3.5-MoE-instruct": 41_873_153_344,
    "internlm2-20b": 19_861_149_696,
    "internlm-7b": 7_321_292_800,
    "internlm-20b": 20_000_000_000,
    "Baichuan2-13B-Chat": 13_896_668_160,
    "Baichuan-7B": 7_000_559_616,
    "Baichuan-13B-Chat": 13_264_901_120,
    "falcon-7b": 6_921_720_704,
    "mpt-7b": 6_649_286_656,
    "mpt-30b": 30_000_000_000,
    "opt-125m": 125_239_296,
    "opt-2.7b": 2_651_596_800,
    "opt-6.7b": 6_658_473_984,
    "opt-13b": 12_853_473_280,
    "opt-30b": 29_974_540_288,
    "opt-66b": 65_718_000_000,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neox-20b": 20_554_567_680,
    "pythia-2.8b": 2_775_208_960,
    "pythia-6.9b": 6_857_302_016,
    "pythia-12b": 11_846_072_320,
    "RedPajama-INCITE-Chat-3B-v1": 2_775_864_320,
    "bloom": 176_247_271_424,
    "bloom-7b1": 7_069_016_064,
    "bloom-3b": 3_002_557_440,
    "mamba-2.8b-hf": 2_768_345_600,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-15b": 15_957_889_024,
    "starcoder": 15_517_456_384,
    "stablelm-2-1_6b": 1_644_515_328,
    "OLMo-2-1124-13B": 13_716_198_400,
    "OLMo-2-0425-1B": 1_484_916_736,
    "OLMoE-1B-7B-0924": 6_919_161_856,
    "granite-3.0-2b-instruct": 2_533_539_840,
    "granite-3.0-8b-instruct": 8_170_848_256,
    "granite-3.1-2b-instruct": 2_533_539_840,
    "granite-3.3-2b-instruct": 2_533_548_032,
    "granite-3.3-8b-instruct": 8_170_864_640,
    "c4ai-command-r-v01": 34_980_831_232,
    "c4ai-command-r-08-2024": 32_296_476_672,
    "c4ai-command-r-plus": 103_810_674_688,
    "c4ai-command-r7b-12-2024": 8_028_033_024,
    "c4ai-command-a-03-2025": 111_057_580_032,
    "EXAONE-3.5-2.4B-Instruct": 2_405_327_360,
    "EXAONE-3.5-7.8B-Instruct": 7_818_448_896,
    "EXAONE-3.5-32B-Instruct": 32_003_195_904,
    "Llama-4-Maverick-17B-128E-Instruct": 401_580_000_000,
    "ERNIE-4.5-0.3B-PT": 360_748_032,
    "Seed-OSS-36B-Instruct": 36_151_104_512,
    "Llama-3.2-11B-Vision-Instruct": 10_670_220_835,
    "Llama-3.2-90B-Vision-Instruct": 88_590_000_000,
    "Ministral-3-8B-Instruct-2512": 8_920_000_000,
    "Ministral-3-14B-Instruct-2512": 13_950_000_000,
    "gemma-4-E4B": 7_465_000_000,
    "gemma-4-26B-A4B": 25_230_000_000,
    "Qwen2.5-VL-72B-Instruct": 73_410_777_344,
    "phi-1_5": 1_418_270_720,
    "Orion-14B-Base": 14_500_000_000,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_counts_what_is_published_of_it(name: str) -> None:
    assert count_params(known_model(name)).total == pytest.approx(PUBLISHED[name], rel=0.005)


def test_every_model_written_down_from_its_published_shape_is_counted_here() -> None:
    written = {model.name for model in known_models() if "published shape" in model.source.title}
    assert written <= set(PUBLISHED)
    assert len(written) > 100


@pytest.mark.parametrize("name", ["Kimi-K2-Thinking", "Kimi-K2.5"])
def test_weights_that_are_published_in_four_bits_weigh_what_the_files_do(name: str) -> None:
    """594 GB, as the model card of Kimi-K2-Thinking gives the files."""
    from inference_bench.accounting.weights import count_loaded_weights
    from inference_bench.facts.load import known_loaded_model

    assert count_loaded_weights(known_loaded_model(name)).total == pytest.approx(594e9, rel=0.01)
