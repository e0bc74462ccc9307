"""Print the error of every maths function: python -m tests.vector_math.ulp_table [names]"""

from __future__ import annotations

import sys

import numpy as np

from tests.vector_math import measure
from tests.vector_math.table import TABLE


def main():
    print(f"{'function':10s} {'type':8s} {'max ULP':>8s} {'mean':>6s} {'promised':>8s}  worst at")
    for name in sys.argv[1:] or TABLE:
        for kind, per_exponent, dense in ((np.float32, 20_000, 2_000_000), (np.float64, 200, 200_000)):
            greatest, mean, where, got, wanted = measure.worst(name, kind, per_exponent, dense)
            promised = TABLE[name].ulp[int(kind == np.float64)]
            places = ", ".join(f"{float(x):.9g}" for x in where)
            print(
                f"{name:10s} {kind.__name__:8s} {greatest:8.3f} {mean:6.3f} {promised:8.1f}  "
                f"{places} -> {float(got):.9g}",
                flush=True,
            )


if __name__ == "__main__":
    main()
