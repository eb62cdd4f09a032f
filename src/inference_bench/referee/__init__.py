"""Is a measured time possible at all: each request held to the least time that physics allows it."""
