"""Connection management: its messages, its agents over bad networks and against attacks, and programs over cards."""
