"""Random events of a connection, as its owner reports them."""

LINE, DELAY_NS, PACKET = 100e9, 20e3, 4178
EVENTS = ("on_ack", "on_delay", "on_cnp", "on_loss")


def random_events(rng, count):
    """Yield ``(event, time, arguments)``; gaps between events, delays and amounts spread over several decades."""
    now = 0.0
    for _ in range(count):
        now += 10 ** rng.uniform(1, 6.5)
        event = rng.choices(EVENTS, weights=(6, 3, 1, 1))[0]
        packets = rng.randint(1, 64)
        arguments = {"on_ack": (packets * PACKET, rng.choice((1, 3)) * packets * PACKET),
                     "on_delay": (DELAY_NS * 10 ** rng.uniform(-0.1, 1.5),), "on_cnp": (),
                     "on_loss": (packets * PACKET,)}[event]
        yield event, now, arguments
