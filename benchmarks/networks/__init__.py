"""Networks in double precision on a CPU: regression, and differential equations by physics-informed networks."""
