"""What workers need on a real GPU: memory that travels between processes, the driver's start, launches kept account of."""
