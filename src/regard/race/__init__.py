"""Train several recipes on the same text with the same budget, and compare their quality and cost."""
