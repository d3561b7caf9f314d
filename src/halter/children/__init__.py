"""Child processes: marked, watched, and ended together with everything that they have started."""
