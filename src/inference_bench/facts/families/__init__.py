"""How each architecture's config.json is read: one module a group of architectures, loaded when one is asked for.

The rules are those of the configuration and modelling files of Hugging Face Transformers 5.24, or, for models that keep
their code beside the weights, of that code.
"""
