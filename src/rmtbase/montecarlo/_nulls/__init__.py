"""Null tables at hand: made at once, cached, or shipped as the atlas."""
