"""DMA read engine: payload streams and single lines from host memory."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..contract.params import exact_log2
from ..part.arbiter import Arbiter
from ..part.layouts import Beat, DmaRequest, LineData, LineRequest
from .bulk_read import BulkReader
from .completion_credit import CompletionCredit
from .line_read import LineReader
from .scatter import Scatter
from .tlp import SIZE_CODE_WIDTH, SIZE_MIN_LOG2, CompletionBeat, ReadTlp

BULK_SHARE = 8            # a bulk client other than the first gets 1/8 of the bulk tags


class DmaRead(wiring.Component):
    """Reads host memory for bulk clients (byte streams) and line clients (64-byte lines).

    Tags 0 to ``bulk_tags - 1`` are the bulk clients', ``line_tags`` more the line clients'. Every bulk
    client has separate tags and a separate reorder buffer, so none waits for another to take its data: the
    first client has most tags, every further one an eighth. Requests of all share the link round-robin.
    Outstanding reads fit the completion buffer of the hard block: see
    :class:`~weft.hdl.pcie.completion_credit.CompletionCredit`.

    Throughput: one beat per cycle and bulk client, one line per cycle; one read request per two cycles.

    Parameters
    ----------
    params : CardParams
    bulk_clients, line_clients : int

    Members
    -------
    cfg_max_read_req : In(3)
        128 bytes << code.
    i_bulk, o_bulk : In(stream DmaRequest).array(bulk_clients), Out(stream Beat).array(bulk_clients)
        One packet for the requests up to one with ``last``; its first byte is byte 0 of a beat. ``error`` on its last
        beat if any read failed.
    i_line, o_line : In(stream LineRequest).array(line_clients), Out(stream LineData).array(line_clients)
    o_read : Out(stream.Signature(ReadTlp))
    i_completion : In(stream.Signature(CompletionBeat))
        ``ready`` is always 1.
    busy : Out(1)
        Something was accepted and not yet delivered.

    Raises
    ------
    ValueError
        If there are too few bulk tags for the clients, or ``params.bulk_slot_bytes`` is not from 128 to 4096.
    """

    def __init__(self, params, *, bulk_clients=2, line_clients=1):
        self._params, self._bulk_clients, self._line_clients = params, bulk_clients, line_clients
        share = max(params.bulk_tags // BULK_SHARE, 1)
        self._tags = [params.bulk_tags - share * (bulk_clients - 1)] + [share] * (bulk_clients - 1)
        if bulk_clients < 1 or self._tags[0] < 1:
            raise ValueError(f"{params.bulk_tags} bulk tags are not enough for {bulk_clients} clients")
        if not 128 <= params.bulk_slot_bytes <= 4096:
            raise ValueError(f"bulk_slot_bytes is {params.bulk_slot_bytes}; choose 128 to 4096")
        super().__init__({
            "cfg_max_read_req": In(SIZE_CODE_WIDTH),
            "i_bulk": In(stream.Signature(DmaRequest)).array(bulk_clients),
            "o_bulk": Out(stream.Signature(Beat)).array(bulk_clients),
            "i_line": In(stream.Signature(LineRequest)).array(line_clients),
            "o_line": Out(stream.Signature(LineData)).array(line_clients),
            "o_read": Out(stream.Signature(ReadTlp)),
            "i_completion": In(stream.Signature(CompletionBeat)),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        params = self._params
        m.submodules.scatter = scatter = Scatter()
        m.submodules.arbiter = arbiter = Arbiter(ReadTlp, self._bulk_clients + 1)
        m.submodules.line = line = LineReader(
            clients=self._line_clients, first_tag=params.bulk_tags, tags=params.line_tags)
        readers = [line]
        first = 0
        for k, tags in enumerate(self._tags):
            bulk = BulkReader(first_tag=first, tags=tags, slot_bytes=params.bulk_slot_bytes)
            m.submodules[f"bulk{k}"] = bulk
            connect(m, flipped(self.i_bulk[k]), bulk.i)
            connect(m, bulk.o, flipped(self.o_bulk[k]))
            readers.append(bulk)
            first += tags
        for k in range(self._line_clients):
            connect(m, flipped(self.i_line[k]), line.i[k])
            connect(m, line.o[k], flipped(self.o_line[k]))

        slot_code = exact_log2(params.bulk_slot_bytes) - SIZE_MIN_LOG2
        size = Signal(SIZE_CODE_WIDTH)
        m.d.sync += size.eq(Mux(self.cfg_max_read_req < slot_code, self.cfg_max_read_req, slot_code))
        m.d.comb += [
            scatter.i.eq(self.i_completion.payload),
            scatter.i_valid.eq(self.i_completion.valid),
            self.i_completion.ready.eq(1),
        ]
        for k, reader in enumerate(readers):
            connect(m, reader.o_read, arbiter.i[k])
            m.d.comb += [
                reader.size.eq(size),
                reader.completion.eq(scatter.o),
                reader.completion_valid.eq(scatter.o_valid),
            ]

        m.submodules.credit = credit = CompletionCredit(straddle=params.straddle)
        connect(m, arbiter.o, credit.i)
        connect(m, credit.o, flipped(self.o_read))
        m.d.comb += [
            credit.completion.eq(self.i_completion.payload), credit.completion_valid.eq(self.i_completion.valid),
            self.busy.eq(Cat(reader.busy for reader in readers).any()),
        ]
        return m
