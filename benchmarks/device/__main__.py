"""`python -m benchmarks.device`."""

from benchmarks.device.run import main

main()
