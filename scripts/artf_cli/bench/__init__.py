"""TF-gRPC-Bench's drivers: one module a suite, each with `run` and `render`."""
