"""Bazel 4 asks for @rules_cc to set up its toolchains; its rules are Bazel's own."""

cc_binary = native.cc_binary
cc_library = native.cc_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
