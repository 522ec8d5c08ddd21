"""The two-level receive window: bitmap window, node builder, matcher, head cache, prefetch."""
