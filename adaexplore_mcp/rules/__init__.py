"""What failures teach."""
