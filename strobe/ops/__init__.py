"""Sparse, dense and sequence operations as pure functions, by native (CPU) or Triton (GPU) kernels, or plain torch."""
