"""Compose the domains into what a caller asks for; the only place where they meet."""
