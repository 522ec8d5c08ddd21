"""Exhaustive search and long traffic runs of channels, which take too long for the tests.

``python -m weft.tb.test.driver.channel states | traffic``
"""

from typing import Annotated

import typer

from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.driver.channel import card_traffic
from weft.tb.test.driver.channel import traffic as traffic_
from weft.tb.test.driver.channel.states import Search
from weft.tb.test.driver.channel.sweep import capacities_up_to, thresholds_up_to, verdict

app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def states(most: Annotated[int, typer.Option(help="Largest capacity.", min=1, max=8)] = 4,
           exact: Annotated[bool, typer.Option("--exact", help="Count local credits; up to 2 in reasonable time.")]
           = False,
           thresholds: Annotated[bool, typer.Option("--thresholds", help="Every threshold; bad ones must be refused.")]
           = False):
    """Search every state of every channel up to a capacity, and stop at the first bad state."""
    if thresholds:
        for capacities in capacities_up_to(most):
            for forced, refused in thresholds_up_to(capacities):
                bad = verdict(forced)
                print(f"{forced}: {'refused' if refused else 'possible'}; {bad or 'no bad state'}", flush=True)
                if refused != (bad is not None):
                    raise typer.Exit(1)
        return
    total = 0
    print("data  imm    states     steps  acks  depth")
    for capacities in capacities_up_to(most):
        found = Search(capacities, exact=exact).run()
        total += found.states
        print(f"{capacities.max_send_data_wr:4}{capacities.max_send_imm_wr:5}{found.states:10}{found.steps:10}"
              f"{found.acks:6}{found.depth:7}", flush=True)
    print(f"{total} states, none of them bad")


@app.command()
def traffic(messages: Annotated[int, typer.Option(help="Over all connections.", min=1)] = 1_000_000,
            seed: Annotated[int | None, typer.Option(help="Of everything that is drawn.")] = None,
            cards: Annotated[bool, typer.Option("--cards", help="Over functional cards whose link loses frames.")]
            = False):
    """Send messages both ways over connections in memory, with random capacities, thresholds and delivery."""
    seed = drawn_seed() if seed is None else seed
    print(f"traffic --messages {messages} --seed {seed}{' --cards' * cards}", flush=True)
    counts = card_traffic.run(messages, seed) if cards else traffic_.run(messages, seed)
    for name, value in sorted(counts.items()):
        print(f"{name:16}{value:12}")


if __name__ == "__main__":
    app()
