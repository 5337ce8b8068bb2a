"""Message templates of the simulator: checks, reviews and changes like Meta's."""
