"""Streaming video question answering in a fixed-size, HERMES-compressed KV cache."""

__version__ = "0.1.0"
