"""Files of tensors and what stands beside them, read lazily. Imports nothing else of ``models``."""
