"""What it takes: exact integer counts of parameters, bytes and FLOPs. No time."""
