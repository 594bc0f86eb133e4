"""The methods and `minimize`."""
