"""Show training events: progress in the terminal, `log.jsonl`, TensorBoard, learning curves and the HTML report."""
