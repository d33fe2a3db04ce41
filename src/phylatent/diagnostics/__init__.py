"""Three diagnostics of collapse, of any world model that encodes frames and rolls out actions (sec:three_collapse)."""
