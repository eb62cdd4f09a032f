"""Model files made from other model files: the same weights in another number format, or as a folder that other engines read."""
