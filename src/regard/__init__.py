"""regard: attention you can train, see and ship."""

__version__ = "0.1.0"
