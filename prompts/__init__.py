"""What a model reads: Markdown templates and the one function that renders them."""
