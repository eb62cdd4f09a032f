"""Which module of this package reads which architecture.

In:   a model_type, or the name of a model class
Out:  module names
Read next by: config.py.
"""

from __future__ import annotations

from typing import Final

_OF_MODULE: Final = {
    "plain": (
        "llama cwm mistral ministral ministral3 mixtral qwen2 qwen2_vl_text qwen2_5_vl_text qwen3 qwen3_vl_text "
        "qwen2_moe qwen3_moe qwen3_vl_moe_text phi3 phimoe gemma gemma2 gemma3_text vaultgemma exaone4 minimax_m2 "
        "mimo olmo olmo2 olmo3 olmoe flex_olmo baichuan internlm internlm2 stablelm starcoder2 gpt2 phi gptj codegen "
        "gpt_neox bloom glm glm4 glm4_moe glm4v_text glm4v_moe_text gpt_oss llama4_text cohere cohere2 granite "
        "granitemoe granitemoeshared smollm3 seed_oss hunyuan_v1_dense ernie4_5 ernie4_5_moe dots1 apertus "
        "arcee helium nemotron solar_open orion xverse aquila iquestcoder internlm3 nanochat persimmon "
        "exaone_moe hy_v3 afmoe"
    ),
    "variants": (
        "falcon gpt_bigcode minicpm chatglm opt mpt hunyuan hunyuan_v1_moe mimo_v2_flash mimo_v2 exaone qwen gpt_neo"
    ),
    "latent": "deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2 glm_moe_dsa minicpm3 glm4_moe_lite longcat_flash youtu",
    "compressed": "deepseek_v4",
    "indexed": "minimax_m3_vl_text minimax_m3",
    "delta": "qwen3_next qwen3_5_text qwen3_5_moe_text kimi_linear olmo_hybrid minimax minimax_text_01 minimax_m1",
    "state_space": "mamba mamba2 falcon_mamba jamba nemotron_h granitemoehybrid bamba falcon_h1",
    "own_hybrids": "zamba2 lfm2 lfm2_moe",
    "recurrent": "recurrent_gemma rwkv rwkv5",
    "gemma": "gemma3n_text gemma4_text",
    "encoder_decoder": "whisper t5 mllama_text_model",
    "by_layer": "nemotron-nas deci step3_text step3p5 step3p7",
    "generic": "generic",
}
FAMILY_OF: Final = {name: module for module, names in _OF_MODULE.items() for name in names.split()}

# Where the text part of a multimodal config stands.
TEXT_SECTIONS: Final = ("text_config", "llm_config", "language_config")

# The architecture of the text part where its own section does not name one, and names that are read as another.
TEXT_SECTION_OF: Final = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "glm4v": "glm4v_text",
    "glm4v_moe": "glm4v_moe_text",
    "mistral3": "mistral",
    "sarvam_moe": "glm4_moe",
    "sarvam_mla": "deepseek_v3",
    "gpt-sw3": "gpt2",
    "deepseek_v3_text": "deepseek_v3",
    "mllama": "mllama_text_model",
    "minimax_m3_vl": "minimax_m3_vl_text",
    "fuyu": "persimmon",
    "kimi_vl": "deepseek_v3",
    "kimi_k25": "kimi_k2",
    "kimi_k3": "kimi_linear",
    "step3_vl": "step3_text",
    "step3": "step3_text",
    "step3p5_vl": "step3p5",
    "step3p7_vl": "step3p7",
}

# For configs whose model_type is missing or is not Transformers' own.
OF_CLASS: Final = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "PhiForCausalLM": "phi",
    "GPT2LMHeadModel": "gpt2",
    "GPTBigCodeForCausalLM": "gpt_bigcode",
    "FalconForCausalLM": "falcon",
    "RWForCausalLM": "falcon",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "DeepseekV4ForCausalLM": "deepseek_v4",
    "GlmMoeDsaForCausalLM": "glm_moe_dsa",
    "DeciLMForCausalLM": "nemotron-nas",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Qwen3NextForCausalLM": "qwen3_next",
    "Starcoder2ForCausalLM": "starcoder2",
    "MambaForCausalLM": "mamba",
    "Mamba2ForCausalLM": "mamba2",
    "Rwkv5ForCausalLM": "rwkv5",
    "MiniMaxM1ForCausalLM": "minimax_m1",
    "MiniMaxText01ForCausalLM": "minimax_text_01",
    "HunYuanForCausalLM": "hunyuan",
    "HunYuanMoEV1ForCausalLM": "hunyuan_v1_moe",
    "HunYuanDenseV1ForCausalLM": "hunyuan_v1_dense",
    "ChatGLMModel": "chatglm",
    "ChatGLMForConditionalGeneration": "chatglm",
    "BaichuanForCausalLM": "baichuan",
    "BaiChuanForCausalLM": "baichuan",
    "InternLM2ForCausalLM": "internlm2",
    "MiniCPMForCausalLM": "minicpm",
    "KimiLinearForCausalLM": "kimi_linear",
    "LlamaModel": "llama",
    "MixtralForCausalLM": "mixtral",
}

# Configs whose language-model class in Transformers 5.24 holds the vision tower.
HOLDS_TOWER: Final = frozenset(
    ("gemma3", "gemma4", "qwen3_vl", "qwen3_vl_moe", "mistral3", "ministral3", "qwen2_5_vl", "internvl", "fuyu")
)

# Classes that hold the tower, of configs that a text class can read as well.
WHOLE_CLASSES: Final = frozenset(("Llama4ForConditionalGeneration", "MllamaForConditionalGeneration"))
