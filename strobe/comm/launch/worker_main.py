"""Entry point of a rank's process (``python -m``), started by ``strobe.comm.launch.launcher``."""

import sys

from strobe.comm.launch.worker import main

if __name__ == "__main__":
    main(sys.argv[1:])
