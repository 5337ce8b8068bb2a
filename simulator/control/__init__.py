"""Control of the simulator: what tests and pages make happen, such as a banned account."""
