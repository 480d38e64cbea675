"""The model that is trained: a decoder-only GPT, how it is cut into stages, and the tokens it is trained on."""
