"""Several recipes in, one comparison out: the same text, the same budget, who learns it best and why."""
