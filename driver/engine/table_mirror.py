"""Driver's copy of the card's tables, updated by every successful command."""

from types import SimpleNamespace

from weft.hdl.contract import abi

_REMOTE = abi.AccessFlag.REMOTE_WRITE | abi.AccessFlag.REMOTE_READ | abi.AccessFlag.REMOTE_ATOMIC


class TableMirror:
    """QPs and memory regions by index, as :class:`SimpleNamespace` of the fields of their commands.

    Parameters
    ----------
    index_bits : int
        Low bits of a QPN that are its index.
    """

    def __init__(self, index_bits):
        self._index_mask = (1 << index_bits) - 1
        self.qps, self.mrs = {}, {}

    def on_command(self, opcode, fields):
        """Apply a command that the card executed."""
        opcodes = abi.CommandOpcode
        if opcode is opcodes.MR_CREATE:
            self.mrs[fields["mr_index"]] = SimpleNamespace(**fields)
        elif opcode is opcodes.MR_DESTROY:
            self.mrs.pop(fields["mr_index"], None)
        elif opcode in (opcodes.QP_CREATE, opcodes.QP_MODIFY, opcodes.QP_DESTROY):
            index = fields["qpn"] & self._index_mask
            if opcode is opcodes.QP_CREATE:
                self.qps[index] = SimpleNamespace(**fields)
            elif opcode is opcodes.QP_DESTROY:
                self.qps.pop(index, None)
            elif index in self.qps:
                vars(self.qps[index]).update({"access": 0} | fields)

    def forget(self):
        """Clear the tables, after a reset of the card."""
        self.qps.clear()
        self.mrs.clear()

    def refusal(self, qp_index, key, va, length, need):
        """Return the reason for which the card would reject an access of a QP, or OK.

        The checks and their order are the card's.
        """
        if not length:
            return abi.Reason.OK
        qp, mr = self.qps[qp_index], self.mrs.get(key >> abi.KEY_TAG_BITS)
        if mr is None or mr.key_tag != key % (1 << abi.KEY_TAG_BITS):
            return abi.Reason.BAD_KEY
        # A region that the peer may write and the host may not is a memory window. It belongs to one QP, whose access
        # flags do not apply.
        window = mr.access & abi.AccessFlag.REMOTE_WRITE and not mr.access & abi.AccessFlag.LOCAL_WRITE
        if mr.pd != (qp_index if window else qp.pd):
            return abi.Reason.WRONG_PD
        if va < mr.va or va + length > mr.va + mr.length:
            return abi.Reason.OUT_OF_RANGE
        if need & ~mr.access or need & _REMOTE & ~qp.access and not window:
            return abi.Reason.NO_PERMISSION
        return abi.Reason.OK
