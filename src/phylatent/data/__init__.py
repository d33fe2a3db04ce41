"""Episodes on disk: collected, read, looked into, and cut into the clips that training sees."""
