"""Message templates of the simulator: checked, reviewed and changed as Meta does."""
