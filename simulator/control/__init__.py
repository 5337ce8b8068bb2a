"""The control API of the simulator. Tests and pages use it to cause events, such as a banned account."""
