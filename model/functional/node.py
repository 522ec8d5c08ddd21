"""Nodes for the models: the driver's codec."""

from weft.driver.knitting.node import Node, choose_encoding, damage, decode_body, encode_body, fits, open_holes, runs_of

__all__ = ["Node", "choose_encoding", "damage", "decode_body", "encode_body", "fits", "open_holes", "runs_of"]
