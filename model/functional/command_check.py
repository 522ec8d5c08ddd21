"""Checks of a command's fields, as by ``hdl/command/check.py``."""

from weft.hdl.contract import abi

Opcode, Status, QpState = abi.CommandOpcode, abi.CommandStatus, abi.QpState
PTES_PER_COMMAND = 512
MR_LENGTH_BITS = 48


def refusal(c, params):
    """Return the status with which an unpacked COMMAND is rejected before it reads a table, or None.

    Parameters
    ----------
    c : namespace
    params : CardParams
    """
    if not isinstance(c.opcode, Opcode):
        return Status.BAD_OPCODE
    bad_index, bad_value = _CHECKS.get(c.opcode, _nothing)(c, params)
    return Status.BAD_INDEX if bad_index else Status.BAD_VALUE if bad_value else None


def _nothing(c, params):
    return False, False


def _unaligned(c):
    return c.address % abi.BLOCK_BYTES != 0


def _qp_modify(c, _):
    return False, c.qp_state not in (QpState.RTR, QpState.RTS, QpState.ERR)


def _mr_create(c, params):
    page = abi.PAGE_2M if c.page_2m else abi.PAGE_4K
    pages = (c.va % page + c.length + page - 1) // page
    too_long = c.length >> MR_LENGTH_BITS or c.va + c.length > 1 << 64
    return c.mr_index >= params.mrs, too_long or c.pte_index + pages > params.ptes


def _mr_destroy(c, params):
    return c.mr_index >= params.mrs, False


def _page_table_write(c, params):
    return c.pte_index + c.count > params.ptes, not 1 <= c.count <= PTES_PER_COMMAND or _unaligned(c)


def _extent_set(c, params):
    blocks, rest = divmod(c.length, abi.BLOCK_BYTES)
    odd_length = rest or blocks > (1 << params.extent_blocks_log2) - 2      # the last two numbers are reserved
    wraps = c.address + c.length > 1 << 64
    return c.extent >= params.knit_extents, _unaligned(c) or odd_length or wraps or (blocks and not c.address)


def _statistics(c, _):
    return False, _unaligned(c)


_CHECKS = {Opcode.QP_MODIFY: _qp_modify, Opcode.MR_CREATE: _mr_create, Opcode.MR_DESTROY: _mr_destroy,
           Opcode.PAGE_TABLE_WRITE: _page_table_write, Opcode.EXTENT_SET: _extent_set, Opcode.STATISTICS: _statistics}
