"""Files of tensors and what stands beside them, read lazily: checkpoints, the hub, the bundled model, other programs.

Imports nothing else of ``models``.
"""
