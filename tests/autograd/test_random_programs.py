"""200 seeded random programs; `python tests/autograd/test_random_programs.py 0 2000` runs more."""

import sys
import warnings

import pytest

sys.path.insert(0, __file__.rsplit("/", 1)[0])

import programs

from argand.autograd.partition import default_partition, min_cut_partition


@pytest.mark.parametrize("block", range(10))
def test_random_programs_equal_eager(block):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        partition = [default_partition, min_cut_partition][block % 2]
        seeds = range(block * 20, block * 20 + 20)
        ran = sum(programs.check(seed, partition_fn=partition) for seed in seeds)
    assert ran >= 13  # eager itself refuses the backward of some


def test_long_programs_equal_eager():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # as_strided of a written slice; a write through a view of an expanded tensor
        for seed in (5220, 5232, *range(5000, 5010)):
            programs.check(seed, length=22, partition_fn=min_cut_partition)
        programs.check(3243)  # as_strided beyond a slice: its gradient ends at the slice
        programs.check(20783)  # the stride of a dimension of size one, after a write in place


def main(first, last):
    failed, ran = [], 0
    for seed in range(first, last):
        try:
            ran += programs.check(seed, partition_fn=min_cut_partition)
        except Exception as error:
            failed.append(seed)
            print(seed, type(error).__name__, str(error).replace("\n", " ")[:150])
    print(f"{last - first} programs, {ran} compiled, {len(failed)} differ from eager: {failed}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(int(sys.argv[1]), int(sys.argv[2]))
