"""Run an example as the main program, where torchvision may be a build whose operators do not load (`make zoo`)."""

import runpy
import sys

from benchmarks.libraries.torchvision_names import declare

if __name__ == "__main__":
    declare()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
