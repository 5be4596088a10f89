"""What the scheduler costs as its queue grows."""
