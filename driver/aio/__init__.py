"""Verbs for asyncio."""
