"""A program for another environment: the likeliest next tokens that Transformers finds with a folder, as JSON."""

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(folder: str, prompts: list[str]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    found = []
    for prompt in prompts:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        with torch.no_grad():
            scores = torch.log_softmax(model(ids).logits[0, -1], -1)
        top = [(int(index), float(scores[index])) for index in scores.topk(20).indices]
        found.append({"ids": ids[0].tolist(), "top": top})
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    loading = {key: sorted(info[key]) for key in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    print(json.dumps({"prompts": found, "loading": loading, "chat": chat}))


main(sys.argv[1], json.loads(sys.argv[2]))
