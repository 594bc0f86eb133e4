"""Decisions from evidence: sigma, how far to trust a step, whether to buy T, when to renew B, whether to accept."""
