"""How critical a point is, and the way down from one that is not."""
