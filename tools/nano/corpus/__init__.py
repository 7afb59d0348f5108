"""Generators of the nano model's training and skill conversations, one module per kind."""
