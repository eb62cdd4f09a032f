"""Model files made from other model files: the same weights in another number format, or as a folder that other engines read.

In order: `plan` (what each tensor becomes, from the header alone), `metadata` (the key-values as bytes), `numbers` (one tensor
read and stored anew), `outputs` (there whole or not at all), `gguf_file` (a GGUF file), `hugging_face` (a folder:
`hugging_face_config`, `hugging_face_tokenizer`, `hugging_face_tensors`), `flow` (all of it in one call), `cached` (made once).
"""
