"""The verbs for asyncio: requests that are awaited."""
