"""Hardware counters of one call, by Nsight Compute: run confined, read as data, put in words."""
