from .measure import diff

__all__ = [
    "diff",
]
