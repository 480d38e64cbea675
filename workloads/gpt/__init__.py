"""The trained model: a decoder-only GPT, its division into stages, and its training tokens."""
