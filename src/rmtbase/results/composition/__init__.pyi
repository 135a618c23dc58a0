from .measure import composition

__all__ = ["composition"]
