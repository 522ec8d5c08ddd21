"""Clock-domain crossings on the board: around the card, and in it."""

from dataclasses import replace

from ..mac.crossings import CARD_CROSSINGS, Crossing, Kind

BOARD_CROSSINGS = (
    Crossing(Kind.LEVEL, "mac_side/levels_q", "mac_side/status_cdc/stage0", "mac", "sync"),
    Crossing(Kind.LEVEL, "mac_side/request_toggle", "mac_side/request_cdc/stage0", "sync", "mac"),
    Crossing(Kind.LEVEL, "mac_side/known", "mac_side/ack_cdc/stage0", "mac", "sync"),
    Crossing(Kind.HELD, "mac_side/address", "mac_side/address_mac", "sync", "mac"),
    Crossing(Kind.HELD, "mac_side/held", "mac_side/counter_data", "mac", "sync"),
    Crossing(Kind.LEVEL, "cmac.gt_powergoodout", "power_good_cdc/stage0", None, "sync"),
    Crossing(Kind.LEVEL, "pcie.user_lnk_up", "link_up_cdc/stage0", None, "sync"),
    Crossing(Kind.RESET, "pcie.user_reset", "card_release/release/stage0", "sync", "sync"),
    Crossing(Kind.RESET, "cmac.usr_tx_reset", "mac_release/release/stage0", "mac", "mac"),
    Crossing(Kind.RESET, "cmac.usr_rx_reset", "mac_release/release/stage0", "mac", "mac"),
    Crossing(Kind.RESET, "registers/mac_reset", "init_release/release/stage0", "sync", "init"),
    Crossing(Kind.STATIC, "registers/loopback", "cmac.gt_loopback_in", "sync", "mac"),
    Crossing(Kind.STATIC, "init_release/rst", "cmac.sys_reset", "init", "mac"),
)
DRIVEN = {"mac_up": "mac_side/tx_enable"}      # register of the board that drives a port of the card
CROSSINGS = BOARD_CROSSINGS + tuple(
    replace(one, source=DRIVEN.get(one.source, f"card/{one.source}"), sink=f"card/{one.sink}")
    for one in CARD_CROSSINGS)
