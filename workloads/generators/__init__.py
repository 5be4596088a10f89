"""Made-up workloads by seed: as sessions of text, and as token ids for the simulator."""
