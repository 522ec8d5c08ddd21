"""A congestion control algorithm reacts to a delay and to an acknowledgement."""

from weft.driver.congestion.algorithms import create

flow = create("swift", line_bps=100e9, delay_ns=10_000, queue_us=12.0)
flow.on_delay(now_ns=50_000, rtt_ns=25_000)
flow.on_ack(now_ns=50_000, acked=4178, in_flight=125_000)
print(f"{flow.rate / 1e9:.1f} Gb/s, at most {flow.limit:,} bytes in flight")
