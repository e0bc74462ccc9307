"""capture.rules.arrays: numpy on captured values, as operators of torch. `table` has a row per function of numpy's."""
