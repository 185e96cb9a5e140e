"""Trained models and layers in, what can be known of them out: what a layer costs, and how far it sees."""
