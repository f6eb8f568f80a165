"""The program of a rank's process. ``strobe.comm.launch`` starts it; nobody else needs to."""

import sys

from strobe.comm.rank_process import main

if __name__ == "__main__":
    main(sys.argv[1:])
