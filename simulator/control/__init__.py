"""Control of the simulator: tests and pages cause events through it, such as a banned account."""
