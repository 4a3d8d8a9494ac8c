"""A virtual RDMA host: User-Mode-Linux with Soft-RoCE or soft-iWARP, for tests of RDMA verbs.

`kernel` builds it from Debian's own kernel source, `machine` boots one or two of it over this
machine's file system and runs a command there.
"""
