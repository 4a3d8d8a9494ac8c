"""Helpers shared by the suites that run real TensorFlow servers."""
