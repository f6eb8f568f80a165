"""The run directory: configuration, epochs, result, timings, TensorBoard events."""
