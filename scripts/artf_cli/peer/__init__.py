"""Two hosts that measure together: what one lets the other start, and how they know each other."""
