"""Programs that an endpoint in software is for."""
