"""Real servers: start, wait until the model answers, identify, read their own figures, stop."""
