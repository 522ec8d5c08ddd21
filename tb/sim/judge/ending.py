"""The end of a run of two cards: what each side's counters, scoreboard, knitting blocks and memory guard say."""

from weft.hdl.contract import abi


class Ending:
    """Both methods speak with the card; the first is called for all sides before the second for any.

    Parameters
    ----------
    contexts, endpoints, guards : dict of side
    scoreboards : dict of side
        A side without one is not judged by it.

    Attributes
    ----------
    counters, blocks : dict of side
        What the card has counted; uses of the knitting blocks after the QPs are gone.
    complaints : list of str
    """

    def __init__(self, contexts, endpoints, guards, scoreboards):
        self._contexts, self._endpoints, self._guards, self._scoreboards = contexts, endpoints, guards, scoreboards
        self.counters, self.blocks, self.complaints = {}, {}, []

    def judge(self, side):
        """Compare what the card says of itself and of its QPs with what was seen."""
        context, qps = self._contexts[side], self._endpoints[side].qps
        queries = {}
        for qp in qps:
            answer = context.commands.call(abi.CommandOpcode.QP_QUERY, qpn=qp.qp_num)
            queries[qp.qp_num] = (answer.result0, answer.result1)
        self.counters[side] = context.statistics()
        if side in self._scoreboards:
            spans = sum(qp.receiver.counts["coarsened"] for qp in qps)
            self._ask(f"scoreboard of {side}", self._scoreboards[side].check, self.counters[side], queries, spans)

    def leave(self, side):
        """Destroy everything."""
        self._endpoints[side].close()
        self.blocks[side] = self._contexts[side].knitting.check()
        self._ask(f"memory of {side}", self._guards[side].check)

    def _ask(self, who, check, *about):
        try:
            check(*about)
        except AssertionError as error:
            self.complaints.append(f"{who}: {error}")
