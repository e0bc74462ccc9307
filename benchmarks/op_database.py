"""benchmarks.op_database: torch's operator samples. In: nothing. Out: ``op_db``.

For each list of samples torch walks over the whole stack and reads sources, looking for a unittest to note them in: most of the
time of a sweep. There is none here, so it need not look. (Seeds do not change: torch has a fixed one where no test is found.)
"""

from torch.testing._internal import common_utils

common_utils.extract_test_fn = lambda: None

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

__all__ = ["op_db"]
