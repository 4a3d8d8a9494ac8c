"""The command line of the RDMA-enhanced TensorFlow distribution (`scripts/artf`)."""
