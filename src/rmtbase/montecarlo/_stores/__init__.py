"""Finished chunks: their files, the store that holds them, and reading them again."""
