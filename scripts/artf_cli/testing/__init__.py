"""`artf test`: the suites, how they are run, what they did, and the record of a full run."""
